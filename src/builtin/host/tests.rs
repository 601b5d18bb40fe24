use super::*;
use crate::world::tree::Tree;

fn host(tree: &Tree, command_line: &str) -> Host {
    let roots = tree.roots();
    Host::new(roots, command_line.into())
}

#[test]
fn versions_are_ordered_by_the_uapi_specification() {
    // Each smaller than the next.
    let ascending = [
        "~1",
        "",
        "122.1",
        "123~rc1-1",
        "123",
        "123-a",
        "123-a.1",
        "123-1",
        "123-1.1",
        "123^post1",
        "123.a-1",
        "123.1-1",
        "123a-1",
        "124-1",
    ];
    for (i, a) in ascending.iter().enumerate() {
        for (j, b) in ascending.iter().enumerate() {
            assert_eq!(compare_versions(a.as_bytes(), b.as_bytes()), i.cmp(&j), "{a} {b}");
        }
    }
    for (a, b) in [("1.01", "1.1"), ("1_2", "1+2"), ("", "_")] {
        assert_eq!(compare_versions(a.as_bytes(), b.as_bytes()), Ordering::Equal, "{a} {b}");
    }
    assert_eq!(compare_versions(b"A", b"a"), Ordering::Less);
}

#[test]
fn kernel_versions_are_compared_or_matched() {
    for (value, holds) in [
        ("6.18.*", true),
        ("=$6.18.*", true),
        ("!=$6.18.*", false),
        ("=6.18.44-x", true),
        ("!=6.18.44-x", false),
        (">=6.2", true),
        (">= 6.2", true),
        ("<6.18.5", false),
        (">6.2 <7", true),
        (">6.2 <6.10", false),
        ("\">=6.2\" <7", true),
        (">=", false),
        ("", false),
    ] {
        assert_eq!(is_version("6.18.44-x", value), holds, "{value}");
    }
}

#[test]
fn a_host_is_known_by_name_or_id() {
    let tree = Tree::new();
    tree.file("proc/sys/kernel/hostname", "Box1\n")
        .file("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    for (value, holds) in [
        ("box1", true),
        ("box*", true),
        ("box2", false),
        ("0123456789ABCDEF0123456789abcdef", true),
        ("1123456789abcdef0123456789abcdef", false),
    ] {
        assert_eq!(host(&tree, "").condition("Host", value), holds, "{value}");
    }
}

#[test]
fn a_machine_id_has_32_digits() {
    let tree = Tree::new();
    assert_eq!(host(&tree, "").told.machine_id, None);
    tree.file("etc/machine-id", "uninitialized\n");
    assert_eq!(host(&tree, "").told.machine_id, None);
    tree.file("etc/machine-id", "000102030405060708090a0b0c0d0e0f\n");
    assert_eq!(host(&tree, "").told.machine_id, Some(std::array::from_fn(|i| i as u8)));
}

/// Who writes the FIFO would be waited for, and the device has no end.
#[test]
fn a_machine_id_that_is_no_file_is_none() {
    let tree = Tree::new();
    tree.dir("etc").fifo("etc/machine-id");
    assert_eq!(host(&tree, "").told.machine_id, None);
    std::fs::remove_file(tree.path("etc/machine-id")).unwrap();
    tree.link("etc/machine-id", "/dev/zero");
    assert_eq!(host(&tree, "").told.machine_id, None);
}

#[test]
fn words_of_the_command_line_are_found_with_and_without_value() {
    let tree = Tree::new();
    for (value, holds) in
        [("quiet", true), ("root", true), ("root=/dev/x", true), ("root=/dev/y", false), ("qui", false)]
    {
        assert_eq!(
            host(&tree, "quiet root=/dev/x\n").condition("KernelCommandLine", value),
            holds,
            "{value}"
        );
    }
}

#[test]
fn firmware_is_seen_in_sysfs() {
    let tree = Tree::new();
    tree.dir("sys/firmware/efi")
        .file("proc/device-tree/compatible", "acme,board\0acme,soc\0")
        .file("sys/class/dmi/id/product_name", "Big Box 12\n")
        .file("sys/class/dmi/id/bios_version", "1.10\n");
    for (value, holds) in [
        ("uefi", true),
        ("device-tree", false),
        ("device-tree-compatible(acme,soc)", true),
        ("device-tree-compatible(acme)", false),
        ("smbios-field(product_name = \"Big Box 12\")", true),
        ("smbios-field(product_name =$ Big*)", true),
        ("smbios-field(product_name != Big)", true),
        ("smbios-field(bios_version >= 1.9)", true),
        ("smbios-field(bios_version < 1.9)", false),
        ("smbios-field(missing = x)", false),
        ("smbios-field(../../x = x)", false),
        ("smbios-field(bios_version)", false),
        ("bios", false),
    ] {
        assert_eq!(host(&tree, "").condition("Firmware", value), holds, "{value}");
    }
}

#[test]
fn credentials_are_files() {
    let tree = Tree::new();
    tree.file("run/credentials/@system/net.key", "");
    for (value, holds) in [("net.key", true), ("other", false), ("../@system/net.key", false), ("", false)] {
        assert_eq!(host(&tree, "").condition("Credential", value), holds, "{value}");
    }
}

#[test]
fn architecture_and_virtualization_are_the_constants_of_rules() {
    let tree = Tree::new();
    let host = host(&tree, "");
    let here = host.architecture().expect("a known architecture");
    assert!(host.condition("Architecture", here) && !host.condition("Architecture", "z80"));
    assert!(host.condition("Architecture", "native"));
    let virt = host.constants.get(Constant::Virt).unwrap();
    assert_eq!(host.condition("Virtualization", "yes"), virt != "none");
    assert_eq!(host.condition("Virtualization", "no"), virt == "none");
    assert_eq!(host.condition("Virtualization", virt), virt != "none");
    assert!(!host.condition("Virtualization", "kvm docker"));
    assert!(!(host.condition("Virtualization", "vm") && host.condition("Virtualization", "container")));
}

#[test]
fn os_release_is_a_shell_file() {
    let tree = Tree::new();
    tree.file("usr/lib/os-release", "ID_LIKE=x\nID=\"a b\"\n");
    assert_eq!(host(&tree, "").os_release("ID"), "a b");
    tree.file("etc/os-release", "ID=debian\n");
    assert_eq!(host(&tree, "").os_release("ID"), "debian");
    let host = host(&tree, "");
    tree.file("etc/os-release", "ID=other\n");
    assert_eq!(host.os_release("ID"), "debian", "it is read with the .link files");
    assert_eq!(host.os_release("VERSION_ID"), "");
}

proptest::proptest! {
    #[test]
    fn the_order_of_versions_is_one(a in "[0-9a-zA~^._ -]{0,8}", b in "[0-9a-zA~^._ -]{0,8}") {
        let order = compare_versions(a.as_bytes(), b.as_bytes());
        proptest::prop_assert_eq!(order, compare_versions(b.as_bytes(), a.as_bytes()).reverse());
        proptest::prop_assert_eq!(compare_versions(a.as_bytes(), a.as_bytes()), Ordering::Equal);
    }
}
