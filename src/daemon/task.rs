use crate::builtin::Builtins;
use crate::world::{Roots, claims_dir::ClaimsDir, database, database::Database};
use std::os::fd::OwnedFd;
pub struct World {
    pub builtins: Builtins,
    pub database: Database,
    pub claims: ClaimsDir,
}
impl World {
    pub fn open(roots: &Roots, builtins: Builtins, _a: Option<OwnedFd>) -> std::io::Result<World> {
        let udev = database::open_udev_dir(&roots.run)?;
        Ok(World { builtins, database: Database::open(&udev)?, claims: ClaimsDir::open(&roots.dev, &udev)? })
    }
}
