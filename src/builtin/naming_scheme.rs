//! Naming schemes of network interfaces (builtins.md 1.1.2): which names net_id and net_setup_link
//! give is fixed by a named set of flags, so that an upgrade need not rename interfaces.
//!
//! The table must never change for a name that exists; new behaviour is a new flag in a new scheme.

use bstr::{BStr, ByteSlice};

/// One difference between schemes. The bit numbers are those of builtins.md 1.1.2. Two of its flags
/// are not here: NSPAWN_LONG_HASH concerns a container tool, and REPLACE_STRICTLY's older form is
/// kept only as the flag that the rules ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Flag {
    /// A virtual function is named after its physical function plus `v<n>`.
    SrIovV = 0,
    /// With `ari_enabled` the slot number counts into the function number.
    NparAri = 1,
    /// InfiniBand links get the prefix `ib`.
    Infiniband = 2,
    /// Onboard index 0 is an index.
    ZeroAcpiIndex = 3,
    /// NamePolicy works on links that were renamed already; `keep` must be said.
    AllowRerenames = 4,
    /// The persistent address may be made from the sysname.
    StableVirtualMacs = 5,
    /// netdevsim links get names.
    Netdevsim = 6,
    /// The onboard label has no prefix.
    LabelNoprefix = 7,
    /// A hotplug slot found on a PCI bridge does not count.
    BridgeNoSlot = 9,
    /// Slots by the `function_id` of s390.
    SlotFunctionId = 10,
    /// Onboard indices up to 65535.
    Index16Bit = 11,
    /// NAME= is sanitised strictly and must be a valid name.
    ReplaceStrictly = 12,
    /// Xen network interfaces get names.
    XenVif = 13,
    /// A bridge's slot counts for a multifunction card (v251 to v254).
    BridgeMultifunctionSlot = 14,
    /// Names from the aliases of the device tree.
    DevicetreeAliases = 15,
    /// USB links without a PCI ancestor get a path name.
    UsbHost = 16,
    /// Representors get the suffix `r<n>`.
    SrIovR = 17,
    /// Slots from `firmware_node/sun`.
    FirmwareNodeSun = 18,
    /// The link's own `of_node` is looked at before its parent's.
    DevicetreePortAliases = 19,
    /// The INTERFACE property counts instead of the sysname where a name is kept.
    UseInterfaceProperty = 20,
    /// Device tree names for wireless links.
    DevicetreeAliasesWlan = 21,
    /// MCTP links get the prefix `mc`.
    Mctp = 22,
}

impl Flag {
    const fn bit(self) -> u32 {
        1 << self as u8
    }
}

/// A named set of flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamingScheme {
    name: &'static str,
    flags: u32,
}

const V238: u32 = 0;
const V239: u32 = V238 | Flag::SrIovV.bit() | Flag::NparAri.bit();
const V240: u32 = V239 | Flag::Infiniband.bit() | Flag::ZeroAcpiIndex.bit() | Flag::AllowRerenames.bit();
const V241: u32 = V240 | Flag::StableVirtualMacs.bit();
const V243: u32 = V241 | Flag::Netdevsim.bit() | Flag::LabelNoprefix.bit();
const V245: u32 = V243;
const V247: u32 = V245 | Flag::BridgeNoSlot.bit();
const V249: u32 = V247 | Flag::SlotFunctionId.bit() | Flag::Index16Bit.bit() | Flag::ReplaceStrictly.bit();
const V250: u32 = V249 | Flag::XenVif.bit();
const V251: u32 = V250 | Flag::BridgeMultifunctionSlot.bit();
const V252: u32 = V251 | Flag::DevicetreeAliases.bit();
const V253: u32 = V252 | Flag::UsbHost.bit();
const V254: u32 = V253 | Flag::SrIovR.bit();
const V255: u32 = V254 & !Flag::BridgeMultifunctionSlot.bit();
const V257: u32 = V255 | Flag::FirmwareNodeSun.bit() | Flag::DevicetreePortAliases.bit();
const V258: u32 = V257 | Flag::UseInterfaceProperty.bit();
const V259: u32 = V258 | Flag::DevicetreeAliasesWlan.bit();
const V260: u32 = V259 | Flag::Mctp.bit();
const V261: u32 = V260;

/// All schemes, oldest first; the last one is the default.
const SCHEMES: [NamingScheme; 19] = [
    NamingScheme { name: "v238", flags: V238 },
    NamingScheme { name: "v239", flags: V239 },
    NamingScheme { name: "v240", flags: V240 },
    NamingScheme { name: "v241", flags: V241 },
    NamingScheme { name: "v243", flags: V243 },
    NamingScheme { name: "v245", flags: V245 },
    NamingScheme { name: "v247", flags: V247 },
    NamingScheme { name: "v249", flags: V249 },
    NamingScheme { name: "v250", flags: V250 },
    NamingScheme { name: "v251", flags: V251 },
    NamingScheme { name: "v252", flags: V252 },
    NamingScheme { name: "v253", flags: V253 },
    NamingScheme { name: "v254", flags: V254 },
    NamingScheme { name: "v255", flags: V255 },
    NamingScheme { name: "v257", flags: V257 },
    NamingScheme { name: "v258", flags: V258 },
    NamingScheme { name: "v259", flags: V259 },
    NamingScheme { name: "v260", flags: V260 },
    NamingScheme { name: "v261", flags: V261 },
];

impl NamingScheme {
    /// The newest scheme, which is the default.
    pub fn latest() -> NamingScheme {
        SCHEMES[SCHEMES.len() - 1]
    }

    /// The scheme of this name (`v255`, `latest`).
    pub fn named(name: &[u8]) -> Option<NamingScheme> {
        match name {
            b"latest" => Some(NamingScheme::latest()),
            _ => SCHEMES.into_iter().find(|s| s.name.as_bytes() == name),
        }
    }

    /// What `net.naming_scheme=` of the kernel command line and NET_NAMING_SCHEME of the environment
    /// choose: a plain environment value wins, one with `:` in front counts only without the kernel's.
    /// The text is a warning about a name that does not exist.
    pub fn select(command_line: Option<&BStr>, environment: Option<&BStr>) -> (NamingScheme, Option<String>) {
        let wanted = match environment.filter(|e| !e.is_empty()) {
            Some(plain) if !plain.starts_with(b":") => Some(plain),
            fallback => command_line.or(fallback.map(|e| e[1..].as_bstr())),
        };
        match wanted {
            None => (NamingScheme::latest(), None),
            Some(name) => match NamingScheme::named(name) {
                Some(scheme) => (scheme, None),
                None => {
                    let latest = NamingScheme::latest();
                    let text = format!("Unknown network naming scheme {name:?}, using {}", latest.name);
                    (latest, Some(text))
                }
            },
        }
    }

    /// Its name, the value of ID_NET_NAMING_SCHEME.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Whether it has the flag.
    pub fn has(self, flag: Flag) -> bool {
        self.flags & flag.bit() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(command_line: Option<&str>, environment: Option<&str>) -> (&'static str, bool) {
        let (scheme, warning) = NamingScheme::select(command_line.map(BStr::new), environment.map(BStr::new));
        (scheme.name(), warning.is_some())
    }

    #[test]
    fn environment_beats_the_command_line_unless_it_begins_with_a_colon() {
        for (command_line, environment, scheme, warns) in [
            (None, None, "v261", false),
            (Some("v247"), None, "v247", false),
            (Some("v247"), Some("v249"), "v249", false),
            (Some("v247"), Some(":v249"), "v247", false),
            (None, Some(":v249"), "v249", false),
            (Some("latest"), Some(""), "v261", false),
            (Some("v256"), None, "v261", true),
            (None, Some("v242"), "v261", true),
        ] {
            assert_eq!(
                select(command_line, environment),
                (scheme, warns),
                "{command_line:?} {environment:?}"
            );
        }
    }

    #[test]
    fn names_that_were_never_given_do_not_exist() {
        for name in ["v242", "v244", "v246", "v248", "v256", "v262", "", "V255", "v2550"] {
            assert_eq!(NamingScheme::named(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn a_scheme_has_the_flags_of_the_older_ones_but_for_the_multifunction_slot() {
        let has = |name: &str, flag| NamingScheme::named(name.as_bytes()).unwrap().has(flag);
        assert!(!has("v238", Flag::SrIovV) && has("v239", Flag::SrIovV) && has("v261", Flag::SrIovV));
        assert!(!has("v250", Flag::BridgeMultifunctionSlot));
        assert!(has("v251", Flag::BridgeMultifunctionSlot) && has("v254", Flag::BridgeMultifunctionSlot));
        assert!(!has("v255", Flag::BridgeMultifunctionSlot));
        assert!(!has("v259", Flag::Mctp) && has("v260", Flag::Mctp));
        for pair in SCHEMES.windows(2) {
            let lost = pair[0].flags & !pair[1].flags;
            assert_eq!(lost, if pair[1].name == "v255" { Flag::BridgeMultifunctionSlot.bit() } else { 0 });
        }
    }
}
