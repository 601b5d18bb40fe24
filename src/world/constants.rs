//! CONST{arch}, CONST{virt} and CONST{cvm}: what kind of machine this is (rules.md 3.7).
//!
//! Each is found out the first time a rule asks and does not change after that. A container wins over
//! the virtual machine it runs in. Sources of the markers: systemd.io/CONTAINER_INTERFACE, the
//! hypervisors' CPUID signatures, SMBIOS vendor strings as sysfs shows them (Documentation/ABI).

use super::{Roots, files};
use crate::rules::ask::Constant;
use crate::sys::cpu;
use bstr::{BString, ByteSlice};
use std::cell::OnceCell;
use std::path::Path;

/// The constants of this machine, found out when they are asked for.
#[derive(Debug)]
pub struct Constants {
    roots: Roots,
    container: OnceCell<Option<&'static str>>,
    virt: OnceCell<&'static str>,
    cvm: OnceCell<&'static str>,
}

impl Constants {
    /// Nothing is read yet.
    pub fn new(roots: &Roots) -> Constants {
        let roots = roots.clone();
        Constants { roots, container: OnceCell::new(), virt: OnceCell::new(), cvm: OnceCell::new() }
    }

    /// The value of a constant; None only for the name of an unknown architecture.
    pub fn get(&self, constant: Constant) -> Option<&'static str> {
        match constant {
            Constant::Arch => arch_name(&cpu::machine()),
            Constant::Virt => Some(self.container().unwrap_or_else(|| self.virtual_machine())),
            Constant::Cvm => Some(self.confidential_machine()),
        }
    }

    /// Whether we run in a container.
    pub fn in_container(&self) -> bool {
        self.container().is_some()
    }

    fn container(&self) -> Option<&'static str> {
        *self.container.get_or_init(|| find_container(&self.roots))
    }

    fn virtual_machine(&self) -> &'static str {
        self.virt.get_or_init(|| find_virtual_machine(&self.roots))
    }

    fn confidential_machine(&self) -> &'static str {
        self.cvm.get_or_init(|| find_confidential_machine(&self.roots))
    }
}

/// The word in rules for the machine name of a kernel.
fn arch_name(machine: &[u8]) -> Option<&'static str> {
    let little = cfg!(target_endian = "little");
    Some(match machine {
        b"x86_64" => "x86-64",
        [b'i', b'3'..=b'6', b'8', b'6'] => "x86",
        b"aarch64" => "arm64",
        b"aarch64_be" => "arm64-be",
        b"armeb" => "arm-be",
        b"ppc" => "ppc",
        b"ppcle" => "ppc-le",
        b"ppc64" => "ppc64",
        b"ppc64le" => "ppc64-le",
        b"s390" => "s390",
        b"s390x" => "s390x",
        b"mips" if little => "mips-le",
        b"mips" => "mips",
        b"mips64" if little => "mips64-le",
        b"mips64" => "mips64",
        b"riscv32" => "riscv32",
        b"riscv64" => "riscv64",
        b"loongarch64" => "loongarch64",
        b"sparc" => "sparc",
        b"sparc64" => "sparc64",
        b"ia64" => "ia64",
        b"alpha" => "alpha",
        b"parisc" => "parisc",
        b"parisc64" => "parisc64",
        b"m68k" => "m68k",
        b"sh5" | b"sh64" => "sh64",
        b"arc" => "arc",
        b"arceb" => "arc-be",
        b"cris" | b"crisv32" => "cris",
        b"nios2" => "nios2",
        b"tilegx" => "tilegx",
        _ if machine.starts_with(b"armv") && machine.ends_with(b"b") => "arm-be",
        _ if machine.starts_with(b"arm") => "arm",
        _ if machine.starts_with(b"sh") => "sh",
        _ => return None,
    })
}

const CONTAINERS: [&str; 10] =
    ["systemd-nspawn", "lxc-libvirt", "lxc", "openvz", "docker", "podman", "rkt", "wsl", "proot", "pouch"];

/// The word that rules have for the name that a container manager gives itself.
fn container_name(name: &[u8]) -> Option<&'static str> {
    let name = name.trim_ascii();
    match CONTAINERS.into_iter().find(|known| known.as_bytes() == name) {
        Some(known) => Some(known),
        None if name.is_empty() => None,
        None => Some("container-other"),
    }
}

fn find_container(roots: &Roots) -> Option<&'static str> {
    let proc = &roots.proc;
    if proc.join("vz").exists() && !proc.join("bc").exists() {
        return Some("openvz");
    }
    let release = read(&proc.join("sys/kernel/osrelease"));
    if release.contains_str("Microsoft") || release.contains_str("WSL") {
        return Some("wsl");
    }
    let first_environment = read(&proc.join("1/environ"));
    let variable = first_environment.split(|&b| b == 0).find_map(|v| v.strip_prefix(b"container="));
    let manager =
        [read(&roots.run.join("host/container-manager")), read(&roots.run.join("systemd/container"))];
    let named = manager.iter().map(|m| m.as_slice()).chain(variable).find_map(container_name);
    let top = roots.run.parent().unwrap_or(Path::new("/"));
    named
        .or_else(|| roots.run.join(".containerenv").exists().then_some("podman"))
        .or_else(|| top.join(".dockerenv").exists().then_some("docker"))
        .or_else(|| is_traced_by_proot(proc).then_some("proot"))
}

/// proot runs its programs by ptrace.
fn is_traced_by_proot(proc: &Path) -> bool {
    let status = read(&proc.join("self/status"));
    let tracer = status.lines().find_map(|line| line.strip_prefix(b"TracerPid:")).map(|pid| pid.trim_ascii());
    match tracer.and_then(|pid| pid.to_str().ok()) {
        None | Some("" | "0") => false,
        Some(pid) => read(&proc.join(pid).join("comm")).starts_with(b"proot"),
    }
}

/// What the machine says of itself.
#[derive(Debug, Default)]
struct Signs {
    /// The hypervisor bit of CPUID; on other processors unknown.
    hypervisor_bit: Option<bool>,
    /// Whether SMBIOS says that it describes a virtual machine.
    smbios_bit: Option<bool>,
    /// Twelve bytes of CPUID leaf 0x40000000, if the bit is set.
    signature: BString,
    /// Product, vendor, board, firmware vendor, version.
    dmi: Vec<BString>,
    /// `hypervisor/compatible` of the device tree.
    tree: BString,
    /// `compatible` of the device tree: the machine.
    machine: BString,
    /// The device tree has QEMU's firmware configuration device.
    tree_has_fw_cfg: bool,
    /// The device tree has a partition name as PowerVM gives.
    tree_has_partition: bool,
    /// /sys/hypervisor/type
    hypervisor: BString,
    /// /proc/xen/capabilities
    xen_capabilities: BString,
    /// /proc/cpuinfo
    cpuinfo: BString,
    /// /proc/sysinfo of s390.
    sysinfo: BString,
}

const SIGNATURES: [(&str, &str); 11] = [
    ("XenVMMXenVMM", "xen"),
    ("KVMKVMKVM", "kvm"),
    ("Linux KVM Hv", "kvm"),
    ("TCGTCGTCGTCG", "qemu"),
    ("VMwareVMware", "vmware"),
    ("Microsoft Hv", "microsoft"),
    ("bhyve bhyve ", "bhyve"),
    ("QNXQVMBSQG", "qnx"),
    ("ACRNACRNACRN", "acrn"),
    ("SRESRESRESRE", "sre"),
    ("Apple VZ", "apple"),
];

const DMI_VENDORS: [(&str, &str); 18] = [
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("KubeVirt", "kvm"),
    ("Amazon EC2", "amazon"),
    ("QEMU", "qemu"),
    ("VMware", "vmware"),
    ("VMW", "vmware"),
    ("innotek GmbH", "oracle"),
    ("VirtualBox", "oracle"),
    ("Oracle Corporation", "oracle"),
    ("Xen", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Hyper-V", "microsoft"),
    ("Apple Virtualization", "apple"),
    ("Google Compute Engine", "google"),
    ("Google", "google"),
];

fn read_signs(roots: &Roots) -> Signs {
    let hypervisor_bit = cpu::cpuid(1).map(|r| r[2] & (1 << 31) != 0);
    let signature = match hypervisor_bit {
        Some(true) => signature(cpu::cpuid(0x4000_0000)),
        _ => BString::default(),
    };
    let dmi = ["product_name", "sys_vendor", "board_vendor", "bios_vendor", "product_version"];
    let tree = roots.proc.join("device-tree");
    Signs {
        hypervisor_bit,
        smbios_bit: smbios_bit(&read(&roots.sys.join("firmware/dmi/entries/0-0/raw"))),
        signature,
        dmi: dmi.iter().map(|name| read(&roots.sys.join("class/dmi/id").join(name))).collect(),
        tree: read(&tree.join("hypervisor/compatible")),
        machine: read(&tree.join("compatible")),
        tree_has_fw_cfg: super::sysfs::list(&tree).iter().any(|name| name.contains_str("fw-cfg")),
        tree_has_partition: tree.join("ibm,partition-name").exists(),
        hypervisor: read(&roots.sys.join("hypervisor/type")),
        xen_capabilities: read(&roots.proc.join("xen/capabilities")),
        cpuinfo: read(&roots.proc.join("cpuinfo")),
        sysinfo: read(&roots.proc.join("sysinfo")),
    }
}

/// Bit 4 of the second extension byte of the BIOS characteristics, at 0x13 of the table of type 0 (SMBIOS,
/// DSP0134); older tables are shorter.
fn smbios_bit(bios_table: &[u8]) -> Option<bool> {
    let length = usize::from(*bios_table.get(1)?);
    bios_table[..length.min(bios_table.len())].get(0x13).map(|byte| byte & 1 << 4 != 0)
}

/// The text in registers ebx, ecx, edx.
fn signature(registers: Option<[u32; 4]>) -> BString {
    let Some([_, rest @ ..]) = registers else { return BString::default() };
    rest.iter().flat_map(|r| r.to_le_bytes()).collect::<Vec<u8>>().into()
}

fn find_virtual_machine(roots: &Roots) -> &'static str {
    virtual_machine(&read_signs(roots))
}

fn virtual_machine(signs: &Signs) -> &'static str {
    if signs.cpuinfo.lines().any(|l| l.starts_with(b"vendor_id") && l.contains_str("User Mode Linux")) {
        return "uml";
    }
    let dmi = signs
        .dmi
        .iter()
        .find_map(|text| DMI_VENDORS.iter().find(|(vendor, _)| text.starts_with(vendor.as_bytes())))
        .map(|&(_, name)| name);
    // Machines of these clouds say so in DMI even where no hypervisor runs; where the processor does not tell,
    // SMBIOS may.
    let is_virtual = signs.hypervisor_bit.or(signs.smbios_bit);
    let dmi = dmi.filter(|name| !matches!(*name, "amazon" | "google") || is_virtual != Some(false));
    // These are known better by DMI: their hypervisor's signature is that of another.
    if let Some(name @ ("oracle" | "xen" | "amazon" | "google" | "parallels")) = dmi {
        return xen_or(name, signs);
    }
    let known = SIGNATURES.iter().find(|(text, _)| signs.signature.starts_with(text.as_bytes()));
    if let Some(&(_, name)) = known {
        return xen_or(name, signs);
    }
    if let Some(name) = dmi {
        return name;
    }
    if signs.hypervisor.trim_ascii() == b"xen" || !signs.xen_capabilities.is_empty() {
        return xen_or("xen", signs);
    }
    device_tree(signs).or_else(|| zseries(signs)).unwrap_or(match signs.hypervisor_bit {
        Some(true) => "vm-other",
        _ => "none",
    })
}

/// The control domain of Xen is no guest.
fn xen_or(name: &'static str, signs: &Signs) -> &'static str {
    if name == "xen" && signs.xen_capabilities.contains_str("control_d") { "none" } else { name }
}

fn device_tree(signs: &Signs) -> Option<&'static str> {
    let compatible = |name: &str| signs.tree.contains_str(name);
    match () {
        () if compatible("linux,kvm") => Some("kvm"),
        () if compatible("xen") => Some("xen"),
        () if compatible("vmware") => Some("vmware"),
        () if !signs.tree.is_empty() => Some("vm-other"),
        // QEMU names a partition too, as the real ones have.
        () if signs.machine.contains_str("qemu,") || signs.tree_has_fw_cfg => Some("qemu"),
        () if signs.tree_has_partition => Some("powervm"),
        () => None,
    }
}

fn zseries(signs: &Signs) -> Option<&'static str> {
    let line = signs.sysinfo.lines().find(|line| line.starts_with(b"VM00 Control Program:"))?;
    Some(if line.contains_str("z/VM") { "zvm" } else { "kvm" })
}

fn find_confidential_machine(roots: &Roots) -> &'static str {
    if read(&roots.sys.join("firmware/uv/prot_virt_guest")).trim_ascii() == b"1" {
        return "protvirt";
    }
    // What the kernel registers in a realm, for the driver that attests it.
    if roots.sys.join("devices/platform/arm-cca-dev").exists() {
        return "cca";
    }
    if cpu::cpuid(1).is_none_or(|r| r[2] & (1 << 31) == 0) {
        return "none";
    }
    let last = cpu::cpuid(0).map_or(0, |r| r[0]);
    // Intel: the text is in ebx, edx, ecx.
    let tdx = cpu::cpuid(0x21).filter(|_| last >= 0x21).map(|[a, b, c, d]| signature(Some([a, b, d, c])));
    if tdx.is_some_and(|text| text == "IntelTDX    ") {
        return "tdx";
    }
    // A paravisor of Hyper-V hides both; the hypervisor tells by its isolation leaf.
    if signature(cpu::cpuid(0x4000_0000)) == "Microsoft Hv"
        && cpu::cpuid(0x4000_0003).is_some_and(|r| r[1] & (1 << 22) != 0)
    {
        return match cpu::cpuid(0x4000_000c).map_or(0, |r| r[1] & 0xf) {
            2 => "sev-snp",
            3 => "tdx",
            _ => "none",
        };
    }
    let amd = cpu::cpuid(0x8000_0000).is_some_and(|r| r[0] >= 0x8000_001f)
        && cpu::cpuid(0x8000_001f).is_some_and(|r| r[0] & 2 != 0);
    if amd { sev(roots) } else { "none" }
}

/// The protection that is active in a guest of AMD, from the register that tells all. Without the `msr` driver
/// only the strongest one is known, by a folder (since kernel 6.11) that is there in no other guest.
fn sev(roots: &Roots) -> &'static str {
    match read_sev_status(roots) {
        Some(status) => sev_name(status),
        None if roots.sys.join("devices/system/cpu/sev").is_dir() => "sev-snp",
        None => "none",
    }
}

/// MSR_AMD64_SEV: which protections are active in this guest; None if the `msr` driver is not there.
fn read_sev_status(roots: &Roots) -> Option<u64> {
    use std::os::unix::fs::FileExt;
    let mut value = [0; 8];
    let file = std::fs::File::open(roots.dev.join("cpu/0/msr"));
    file.and_then(|f| f.read_exact_at(&mut value, 0xc001_0131)).ok()?;
    Some(u64::from_le_bytes(value))
}

fn sev_name(status: u64) -> &'static str {
    match status & 7 {
        4.. => "sev-snp",
        2.. => "sev-es",
        1 => "sev",
        _ => "none",
    }
}

/// A small file; empty if it cannot be read.
fn read(path: &Path) -> BString {
    files::read_bounded(path, 1 << 20).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    #[test]
    fn architectures_have_their_words() {
        for (machine, word) in [
            ("x86_64", "x86-64"),
            ("i686", "x86"),
            ("aarch64", "arm64"),
            ("armv7l", "arm"),
            ("armv5tejl", "arm"),
            ("armv7b", "arm-be"),
            ("sh4a", "sh"),
            ("ppc64le", "ppc64-le"),
        ] {
            assert_eq!(arch_name(machine.as_bytes()), Some(word), "{machine}");
        }
        assert_eq!(arch_name(b"pdp11"), None);
    }

    #[test]
    fn containers_are_known_by_their_markers() {
        let cases: [(&str, &str, Option<&str>); 10] = [
            ("none", "", None),
            ("run/host/container-manager", "systemd-nspawn\n", Some("systemd-nspawn")),
            ("run/systemd/container", "lxc", Some("lxc")),
            ("run/systemd/container", "novel", Some("container-other")),
            ("run/systemd/container", "\n", None),
            ("proc/1/environ", "A=1\0container=podman\0", Some("podman")),
            ("run/.containerenv", "", Some("podman")),
            (".dockerenv", "", Some("docker")),
            ("proc/vz/x", "", Some("openvz")),
            ("proc/sys/kernel/osrelease", "5.15.0-microsoft-standard-WSL2", Some("wsl")),
        ];
        for (file, content, expected) in cases {
            let tree = Tree::new();
            tree.file(file, content);
            assert_eq!(find_container(&tree.roots()), expected, "{file} {content}");
            let constants = Constants::new(&tree.roots());
            assert_eq!(constants.in_container(), expected.is_some());
            if let Some(name) = expected {
                assert_eq!(constants.get(Constant::Virt), Some(name));
            }
        }
    }

    #[test]
    fn a_tracer_called_proot_is_a_container() {
        let tree = Tree::new();
        tree.file("proc/self/status", "Name:\tx\nTracerPid:\t7\n").file("proc/7/comm", "proot-x86\n");
        assert_eq!(find_container(&tree.roots()), Some("proot"));
    }

    #[test]
    fn virtual_machines_are_known_by_signature_and_vendor() {
        for (bit, signature, vendor, expected) in [
            (Some(false), "", "LENOVO", "none"),
            (Some(true), "KVMKVMKVM\0\0\0", "QEMU", "kvm"),
            (Some(true), "TCGTCGTCGTCG", "QEMU", "qemu"),
            (Some(true), "KVMKVMKVM\0\0\0", "Amazon EC2", "amazon"),
            (Some(false), "", "Amazon EC2", "none"),
            (Some(true), "KVMKVMKVM\0\0\0", "Google Compute Engine", "google"),
            (Some(true), "VBoxVBoxVBox", "innotek GmbH", "oracle"),
            (Some(true), "Microsoft Hv", "Microsoft Corporation", "microsoft"),
            (Some(true), "NewNewNewNew", "", "vm-other"),
            (None, "", "QEMU", "qemu"),
            (None, "", "Amazon EC2", "amazon"),
            (None, "", "", "none"),
        ] {
            let dmi = vec!["".into(), vendor.into()];
            let signs = Signs { hypervisor_bit: bit, signature: signature.into(), dmi, ..Signs::default() };
            assert_eq!(virtual_machine(&signs), expected, "{signature} {vendor}");
        }
        let signs = |tree: &str, sysinfo: &str, xen: &str, cpuinfo: &str| Signs {
            tree: tree.into(),
            sysinfo: sysinfo.into(),
            xen_capabilities: xen.into(),
            cpuinfo: cpuinfo.into(),
            ..Signs::default()
        };
        assert_eq!(virtual_machine(&signs("linux,kvm\0", "", "", "")), "kvm");
        assert_eq!(virtual_machine(&signs("", "VM00 Control Program: z/VM 7.1", "", "")), "zvm");
        assert_eq!(virtual_machine(&signs("", "", "control_d\n", "")), "none");
        assert_eq!(virtual_machine(&signs("", "", "xen-3.0\n", "")), "xen");
        assert_eq!(virtual_machine(&signs("", "", "", "vendor_id\t: User Mode Linux\n")), "uml");
    }

    #[test]
    fn where_the_processor_does_not_tell_smbios_does() {
        let bios = |length: u8, byte: u8| {
            let mut table = vec![0u8; 0x18];
            (table[1], table[0x13]) = (length, byte);
            smbios_bit(&table)
        };
        assert_eq!([bios(0x18, 0x10), bios(0x18, 0x0f), bios(0x12, 0x10)], [Some(true), Some(false), None]);
        assert_eq!((smbios_bit(b""), smbios_bit(&[0, 0x18])), (None, None));
        for (bit, smbios, expected) in [
            (None, Some(true), "amazon"),
            (None, Some(false), "none"),
            (Some(true), Some(false), "amazon"),
            (Some(false), Some(true), "none"),
        ] {
            let dmi = vec!["Amazon EC2".into()];
            let signs = Signs { hypervisor_bit: bit, smbios_bit: smbios, dmi, ..Signs::default() };
            assert_eq!(virtual_machine(&signs), expected, "{bit:?} {smbios:?}");
        }
        let power = |machine: &str| {
            let signs = Signs { machine: machine.into(), tree_has_partition: true, ..Signs::default() };
            virtual_machine(&signs)
        };
        assert_eq!((power("qemu,pseries\0"), power("IBM,9009-22A\0")), ("qemu", "powervm"));
    }

    #[test]
    fn the_strongest_protection_names_a_confidential_machine() {
        let names = [0, 1, 3, 7, 8].map(sev_name);
        assert_eq!(names, ["none", "sev", "sev-es", "sev-snp", "none"]);
        for (file, expected) in [
            ("sys/firmware/uv/prot_virt_guest", "protvirt"),
            ("sys/devices/platform/arm-cca-dev/uevent", "cca"),
        ] {
            let tree = Tree::new();
            tree.file(file, "1\n");
            assert_eq!(Constants::new(&tree.roots()).get(Constant::Cvm), Some(expected));
        }
        let tree = Tree::new();
        assert_eq!(sev(&tree.roots()), "none");
        tree.file("sys/devices/system/cpu/sev/vmpl", "0\n");
        assert_eq!(sev(&tree.roots()), "sev-snp");
        // The register's number is the place in the file, which is one hole up to there.
        tree.dir("dev/cpu/0");
        let file = std::fs::File::create(tree.path("dev/cpu/0/msr")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &1u64.to_le_bytes(), 0xc001_0131).unwrap();
        assert_eq!(sev(&tree.roots()), "sev");
    }
}
