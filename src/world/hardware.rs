//! Attributes whose text a driver gets from its device each time they are read: it may send a command and
//! wait, wake the device up, or wait for a lock that is held meanwhile. They are never read on the loop.
//!
//! Must stay true: attributes that common rules ask of every device (vendor and product numbers, names, sizes) are in
//! no entry, because the kernel prints them from memory. An attribute that is missing here costs one slow read:
//! attributes that turn out to wait are learnt (tasks/slow.rs). Strings and the configuration of USB devices are left
//! to that: they are in memory, behind a lock that is held only while the device is reset or a driver binds.
//!
//! Source: the kernel's Documentation/ABI, which says what each attribute shows, and the functions that show them.

use Names::{AllBut, Only};

/// Names of attributes; one that ends in `*` stands for all that begin so.
#[derive(Clone, Copy, Debug)]
enum Names {
    Only(&'static [&'static str]),
    AllBut(&'static [&'static str]),
}

/// What drivers are asked for in the attributes of a subsystem's devices.
fn of_subsystem(subsystem: &[u8]) -> Option<Names> {
    Some(match subsystem {
        // Batteries and chargers: the embedded controller, ACPI methods, I2C. `uevent` shows all of them.
        b"power_supply" => AllBut(&["type"]),
        // Sensors behind slow buses, drives that must spin up, firmware.
        b"hwmon" => AllBut(&["name", "uevent"]),
        b"iio" => AllBut(&["name", "label", "dev", "uevent"]),
        b"counter" => AllBut(&["name", "dev", "uevent"]),
        b"thermal" => AllBut(&["type", "available_policies", "policy", "uevent"]),
        // Clocks on I2C. `hctosys`, whether the kernel has set its own clock by this one, is in memory.
        b"rtc" => Only(&["date", "time", "since_epoch", "wakealarm", "offset"]),
        b"nvmem" => Only(&["nvmem", "cells/*"]),
        // Chips on buses of kilobits in a second.
        b"i2c" => AllBut(&["name", "modalias", "uevent", "new_device", "delete_device"]),
        b"w1" => AllBut(&["name", "id", "uevent"]),
        b"regulator" => {
            Only(&["state", "status", "microvolts", "microamps", "opmode", "bypass", "requested_microamps"])
        }
        b"tpm" => {
            Only(&["pubek", "pcrs", "caps", "timeouts", "durations", "enabled", "active", "owned", "pcr-*"])
        }
        // Settings of the BIOS: a call of its own for each value.
        b"firmware-attributes" => Only(&["attributes/*", "authentication/*"]),
        b"chromeos" => AllBut(&["dev", "uevent"]),
        // Methods of the firmware are run to print these.
        b"acpi" => Only(&["status", "sun", "hrv", "real_power_state"]),
        // The configuration space is read, for which a sleeping device is woken up; a graphics card's
        // sensors; names that a method of the firmware tells; a lock that is held while virtual functions are made.
        b"pci" => Only(&[
            "config",
            "vpd",
            "rom",
            "ssb_sprom",
            "current_link_speed",
            "current_link_width",
            "secondary_bus_number",
            "subordinate_bus_number",
            "acpi_index",
            "label",
            "sriov_numvfs",
            "gpu_busy_percent",
            "mem_busy_percent",
            "gpu_metrics",
            "pp_*",
            "power_dpm_*",
            "pcie_bw",
            "unique_id",
        ]),
        b"rapidio" => Only(&["config"]),
        // A lock that is held while displays are looked for, which takes tenths of seconds.
        b"drm" => Only(&["edid", "modes"]),
        b"backlight" => Only(&["actual_brightness"]),
        b"leds" => Only(&["brightness"]),
        b"gpio" => Only(&["value", "direction"]),
        // Of the outputs of a chip, folders, only `capture` asks; a helper is right for the others too.
        b"pwm" => Only(&["capture", "pwm*"]),
        b"watchdog" => Only(&["timeleft"]),
        b"devfreq" => Only(&["cur_freq", "trans_stat"]),
        b"cpu" => Only(&["cpufreq/*"]),
        // Registers of another processor.
        b"powercap" => AllBut(&["name", "uevent"]),
        b"edac" => Only(&["sdram_scrub_rate"]),
        b"mei" => Only(&["fw_status"]),
        b"pcmcia_socket" => Only(&["cis", "card_*"]),
        b"fpga_manager" => Only(&["status"]),
        b"fsi" => Only(&["raw"]),
        b"usb_role" => Only(&["role"]),
        b"thunderbolt" => Only(&["key", "nvm_authenticate", "nvm_version"]),
        // Requests to the hub, and a lock of the interface.
        b"usb" => Only(&["disable", "port/disable", "supports_autosuspend"]),
        b"usb-serial" => Only(&["latency_timer"]),
        // Commands to the enclosure, to expanders, to the adapter's firmware.
        b"enclosure" => AllBut(&["id", "components", "uevent"]),
        b"sas_phy" => Only(&[
            "invalid_dword_count",
            "running_disparity_error_count",
            "loss_of_dword_sync_count",
            "phy_reset_problem_count",
        ]),
        b"sas_device" => Only(&["enclosure_identifier", "bay_identifier"]),
        b"fc_host" => Only(&[
            "port_id",
            "port_type",
            "port_state",
            "speed",
            "fabric_name",
            "symbolic_name",
            "system_hostname",
            "statistics/*",
        ]),
        b"infiniband" => Only(&["ports/*"]),
        // The management controller behind a serial line of bytes.
        b"platform" => Only(&[
            "firmware_revision",
            "provides_device_sdrs",
            "additional_device_support",
            "aux_firmware_revision",
            "ipmi_version",
        ]),
        // A lock that is held while the kernel writes its messages to a slow console.
        b"tty" => Only(&["active"]),
        b"vtconsole" => Only(&["bind"]),
        _ => return None,
    })
}

/// The same for devices of all subsystems: memory chips, and a lock that is held while a driver binds.
const EVERYWHERE: Names = Only(&["eeprom", "nvmem", "driver_override"]);

/// Folders of attributes that are asked for often and are no devices of their own.
pub(super) const GROUPS: [&str; 7] = ["capabilities", "dm", "id", "md", "power", "queue", "statistics"];

/// Folders of attributes that are queries to the device, wherever they are: UFS.
const FOLDERS: [&str; 9] = [
    "attributes",
    "device_descriptor",
    "flags",
    "geometry_descriptor",
    "health_descriptor",
    "interconnect_descriptor",
    "power_descriptor",
    "string_descriptors",
    "unit_descriptor",
];

impl Names {
    fn contain(self, name: &[u8]) -> bool {
        let is_in = |names: &[&str]| {
            names.iter().any(|listed| match listed.strip_suffix('*') {
                Some(start) => name.starts_with(start.as_bytes()),
                None => name == listed.as_bytes(),
            })
        };
        match self {
            Only(names) => is_in(names),
            // Symlinks to the subsystem, driver and so on of a device, and the power management that all devices
            // have.
            AllBut(names) => {
                !is_in(names)
                    && !matches!(name, b"subsystem" | b"driver" | b"module")
                    && !name.starts_with(b"power/")
            }
        }
    }
}

/// Whether reading an attribute asks the hardware: one of a device of this subsystem itself, or in a folder of
/// its own.
pub(super) fn asks(subsystem: &[u8], name: &[u8]) -> bool {
    let folders = || name.split(|&b| b == b'/').rev().skip(1);
    of_subsystem(subsystem).is_some_and(|names| names.contain(name))
        || EVERYWHERE.contain(name)
        || folders().any(|folder| FOLDERS.iter().any(|listed| folder == listed.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_driver_must_ask_its_device_for_is_known_and_what_rules_ask_of_all_is_not() {
        for (subsystem, name, hardware) in [
            ("power_supply", "capacity", true),
            ("power_supply", "online", true),
            ("power_supply", "uevent", true),
            ("power_supply", "type", false),
            ("power_supply", "subsystem", false),
            ("power_supply", "power/control", false),
            ("hwmon", "temp1_input", true),
            ("hwmon", "name", false),
            ("thermal", "temp", true),
            ("rtc", "time", true),
            ("rtc", "hctosys", false),
            ("pci", "config", true),
            ("pci", "vpd", true),
            ("pci", "pp_dpm_sclk", true),
            ("pci", "vendor", false),
            ("pci", "class", false),
            ("pci", "index", false),
            ("pwm", "pwm0/capture", true),
            ("pwm", "npwm", false),
            ("drm", "edid", true),
            ("drm", "status", false),
            ("i2c", "eeprom", true),
            ("i2c", "name", false),
            ("nowhere", "eeprom", true),
            ("infiniband", "ports/1/state", true),
            ("infiniband", "node_guid", false),
            ("platform", "health_descriptor/eol_info", true),
            ("scsi", "unit_descriptor/lu_enable", true),
            ("scsi", "vpd_pg83", false),
            ("scsi", "model", false),
            ("block", "size", false),
            ("block", "queue/rotational", false),
            ("block", "md/array_state", false),
            ("usb", "idVendor", false),
            ("usb", "serial", false),
            ("usb", "descriptors", false),
            ("usb", "disable", true),
            ("input", "id/vendor", false),
            ("input", "capabilities/abs", false),
            ("dmi", "modalias", false),
            ("ptp", "clock_name", false),
            ("net", "address", false),
            ("mmc", "serial", false),
            ("platform", "attributes", false),
            ("", "", false),
        ] {
            assert_eq!(asks(subsystem.as_bytes(), name.as_bytes()), hardware, "{subsystem} {name}");
        }
    }
}
