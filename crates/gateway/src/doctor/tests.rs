use super::{Finding, Host, Measured, State, interface};
use polder_devices::af_xdp::{Rings, Settings, XdpSupport};
use std::path::PathBuf;

const QUICK: Measured = Measured {
    system_call_ns: 90.0,
    clock_ns: 25.0,
    timer_ns: 900.0,
    wake_p50_us: 55.0,
    wake_p99_us: 80.0,
    stolen: Some(0.0),
};

/// A host of files below a folder that goes with it.
struct Fixture(PathBuf);

impl Fixture {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("polder-doctor-{name}-{}", std::process::id()));
        for (file, text) in files {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{text}\n")).unwrap();
        }
        Self(root)
    }

    fn examine(&self, measured: &Measured, interfaces: &[&str]) -> Vec<Finding> {
        let interfaces = interfaces.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        Host { root: self.0.clone() }.examine(measured, &interfaces)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // What cannot be removed stays in the folder for temporary files.
        let _: std::io::Result<()> = std::fs::remove_dir_all(&self.0);
    }
}

fn find<'a>(findings: &'a [Finding], topic: &str) -> &'a Finding {
    findings.iter().find(|finding| finding.topic == topic).unwrap()
}

const CPU: &str = "sys/devices/system/cpu";
const CLOCKS: &str = "sys/devices/system/clocksource/clocksource0";

#[test]
fn settings_that_cost_have_a_command_and_the_way_back() {
    let host = Fixture::new(
        "costly",
        &[
            (&format!("{CPU}/cpu0/cpufreq/scaling_governor"), "performance"),
            (&format!("{CPU}/cpu1/cpufreq/scaling_governor"), "powersave"),
            (&format!("{CPU}/cpu0/cpuidle/state3/latency"), "890"),
            (&format!("{CPU}/cpu0/cpuidle/state3/disable"), "0"),
            (&format!("{CPU}/vulnerabilities/retbleed"), "Mitigation: untrained return thunk"),
            (&format!("{CPU}/vulnerabilities/srbds"), "Not affected"),
            (&format!("{CPU}/online"), "0-3"),
            (&format!("{CLOCKS}/current_clocksource"), "hpet"),
            (&format!("{CLOCKS}/available_clocksource"), "tsc hpet acpi_pm"),
            ("proc/sys/kernel/osrelease", "6.1.0-13-amd64"),
            (
                "boot/config-6.1.0-13-amd64",
                "CONFIG_BPF_SYSCALL=y\nCONFIG_TUN=m\n# CONFIG_XDP_SOCKETS is not set",
            ),
            ("proc/sys/net/core/bpf_jit_enable", "0"),
            ("sys/class/net/eth9/threaded", "0"),
            (
                "proc/interrupts",
                " 40: 1 0 PCI-MSI eth9-rx-0\n 41: 0 1 PCI-MSI eth9-rx-1\n 42: 0 1 PCI-MSI eth91",
            ),
            ("proc/irq/40/smp_affinity_list", "0"),
            ("proc/irq/41/smp_affinity_list", "0"),
            ("proc/irq/42/smp_affinity_list", "1"),
        ],
    );
    let slow = Measured { clock_ns: 900.0, timer_ns: 11_000.0, stolen: Some(0.2), ..QUICK };
    let findings = host.examine(&slow, &["eth9"]);
    let costly = |topic: &str| {
        let finding = find(&findings, topic);
        assert_eq!(finding.state, State::Costly, "{finding:?}");
        (
            finding.text.clone(),
            finding.change.clone().unwrap_or_default(),
            finding.undo.clone().unwrap_or_default(),
        )
    };
    let (text, change, undo) = costly("frequency");
    assert!(text.contains("powersave") && change.contains("performance") && undo.contains("powersave"));
    let (text, change, undo) = costly("wake-ups");
    assert!(text.contains("890 µs") && change.contains("disable-by-latency") && undo.contains("enable-all"));
    let (text, change, undo) = costly("clock");
    assert!(text.contains("900 ns") && change.contains("echo tsc") && undo.contains("echo hpet"), "{text}");
    assert!(costly("timers").0.contains("11.0 µs"));
    let (text, ..) = costly("system calls");
    assert!(text.contains("retbleed") && !text.contains("srbds"), "{text}");
    assert!(costly("hypervisor").0.contains("20.0 %"));
    assert!(costly("version").0.contains("6.6") && costly("options").0.contains("CONFIG_XDP_SOCKETS"));
    assert!(!costly("options").0.contains("CONFIG_TUN"));
    let (_, change, undo) = costly("BPF compiler");
    assert!(change.ends_with("=1") && undo.ends_with("=0"));
    let (text, change, undo) = costly("interrupts");
    assert!(text.contains("All 2") && change.contains("0-3") && undo.contains("echo 0 "), "{text} {change}");
}

#[test]
fn a_host_that_is_set_well_has_nothing_costly() {
    let host = Fixture::new(
        "well",
        &[
            (&format!("{CPU}/cpu0/cpufreq/scaling_governor"), "performance"),
            (&format!("{CPU}/cpu0/cpuidle/state3/latency"), "890"),
            (&format!("{CPU}/cpu0/cpuidle/state3/disable"), "1"),
            (&format!("{CPU}/online"), "0-3"),
            (&format!("{CLOCKS}/current_clocksource"), "tsc"),
            (&format!("{CLOCKS}/available_clocksource"), "tsc hpet"),
            ("proc/sys/kernel/osrelease", "6.18.2"),
            ("proc/sys/net/core/bpf_jit_enable", "1"),
            ("proc/sys/net/core/rmem_max", "212992"),
            ("sys/class/net/eth9/threaded", "1"),
            ("proc/interrupts", " 40: 1 0 PCI-MSI eth9-rx-0\n 41: 0 1 PCI-MSI eth9-rx-1"),
            ("proc/irq/40/smp_affinity_list", "0"),
            ("proc/irq/41/smp_affinity_list", "1"),
        ],
    );
    let findings = host.examine(&QUICK, &["eth9"]);
    assert!(findings.iter().all(|finding| finding.state != State::Costly), "{findings:#?}");
    let unknown = host.examine(&QUICK, &["eth8"]);
    assert_eq!(find(&unknown, "interface").state, State::Unknown);
}

#[test]
fn a_host_that_says_nothing_is_unknown() {
    let findings = Fixture::new("silent", &[("proc/nothing", "")]).examine(&QUICK, &[]);
    for topic in ["frequency", "clock", "version", "options", "BPF compiler", "rmem_max"] {
        assert_eq!(find(&findings, topic).state, State::Unknown, "{topic}");
    }
}

#[test]
fn settings_of_a_controller_are_judged() {
    let settings = Settings {
        rings: Some(Rings { receive: 256, max_receive: 4096 }),
        receive_delay_us: Some(250),
        features: vec!["rx-lro".to_owned()],
        ..Settings::default()
    };
    let ring = interface::ring("eth9", &settings).unwrap();
    assert_eq!(ring.change.as_deref(), Some("ethtool -G eth9 rx 1024"));
    assert_eq!(ring.undo.as_deref(), Some("ethtool -G eth9 rx 256"));
    assert!(interface::delay("eth9", &settings).unwrap().undo.unwrap().ends_with("rx-usecs 250"));
    assert_eq!(interface::merging("eth9", &settings).unwrap().state, State::Costly);
    let fine = Settings {
        rings: Some(Rings { receive: 512, max_receive: 512 }),
        receive_delay_us: Some(30),
        ..Settings::default()
    };
    assert_eq!(interface::ring("eth9", &fine).unwrap().state, State::Good, "no more can be had");
    assert_eq!(interface::delay("eth9", &fine).unwrap().state, State::Good);
    assert_eq!(interface::merging("eth9", &fine), None);
    assert_eq!(interface::ring("eth9", &Settings::default()), None, "not told");
    let xdp = |native, zero_copy| interface::xdp("eth9", Some(XdpSupport { native, zero_copy }));
    assert_eq!(xdp(false, false).state, State::Costly);
    assert!(
        xdp(true, false).text.contains("without zero copy") && xdp(true, true).text.contains("zero-copy")
    );
    assert_eq!(interface::xdp("eth9", None).state, State::Unknown);
}
