//! Plugins with a fault, each by a script in the plugin's place, and the check that has to find it.

/// A plugin with a fault.
pub(super) struct Mutant {
    pub(super) name: &'static str,
    /// The check that has to fail.
    pub(super) check: &'static str,
    /// Lines of a shell: `$real` is the plugin, `$directory` the bench's.
    pub(super) script: &'static str,
}

const fn mutant(name: &'static str, check: &'static str, script: &'static str) -> Mutant {
    Mutant { name, check, script }
}

/// All of them.
pub(super) const MUTANTS: &[Mutant] = &[
    mutant(
        "says another address",
        "add",
        "[ $CNI_COMMAND = ADD ] || exec $real\n$real | sed s/10.88.0/10.88.1/",
    ),
    mutant(
        "leaves the interface down",
        "add",
        "$real || exit\n[ $CNI_COMMAND != ADD ] || nsenter --net=$CNI_NETNS ip link set $CNI_IFNAME down",
    ),
    mutant("compares nothing", "check", "[ $CNI_COMMAND != CHECK ] || exit 0\nexec $real"),
    mutant(
        "replaces the first attachment",
        "twice",
        "cat >$directory/in.$$\n[ $CNI_COMMAND != ADD ] || CNI_COMMAND=DEL $real <$directory/in.$$\n\
         exec $real <$directory/in.$$",
    ),
    mutant("deletes nothing", "delete", "[ $CNI_COMMAND != DEL ] || exit 0\nexec $real"),
    mutant("keeps the address", "delete", "[ $CNI_COMMAND = DEL ] || exec $real\nsed s/host-local// | $real"),
    mutant(
        "wants ADD before DEL",
        "out of order",
        "[ $CNI_COMMAND != DEL ] || ls $directory/conf.d/cni* >/dev/null || exit 1\nexec $real",
    ),
    mutant(
        "wants the namespace for DEL",
        "namespace gone",
        "[ $CNI_COMMAND != DEL ] || [ -e $CNI_NETNS ] || exit 1\nexec $real",
    ),
    mutant(
        "keeps the address of an ADD that failed",
        "failed ADD",
        "cat >$directory/in.$$\n$real <$directory/in.$$ && exit\n\
         [ $CNI_COMMAND != ADD ] || $directory/bin/host-local <$directory/in.$$ >/dev/null\nexit 1",
    ),
    mutant(
        "wants the gateway for DEL",
        "gateway down",
        "[ $CNI_COMMAND != DEL ] || [ -S $directory/gateway.sock ] || exit 0\nexec $real",
    ),
    mutant("keeps no file", "restart", "$real || exit\n[ $CNI_COMMAND != ADD ] || rm $directory/conf.d/cni*"),
    mutant(
        "keeps the file of a port that goes",
        "reloads",
        "[ $CNI_COMMAND = DEL ] || exec $real\nmkdir $directory/kept.$$\n\
         cp $directory/conf.d/cni* $directory/kept.$$\n$real\ncp $directory/kept.$$/* $directory/conf.d",
    ),
    mutant("holds nothing", "pinned", "sed 's/\"bridge\"/\"sourceGuard\":false,\"bridge\"/' | $real"),
    mutant(
        "holds the station alone",
        "pinned",
        "$real || exit\n[ $CNI_COMMAND = ADD ] || exit 0\nsed -i '/^addresses = /d' $directory/conf.d/cni*\n\
         unset CNI_COMMAND\n$directory/bin/real/polder reload --yes --socket $directory/gateway.sock >/dev/null",
    ),
    mutant("collects nothing", "collect", "[ $CNI_COMMAND != GC ] || exit 0\nexec $real"),
    mutant(
        "collects everything",
        "collect",
        "[ $CNI_COMMAND = GC ] || exec $real\nsed s/valid-attachments/other/ | $real",
    ),
    mutant("is always ready", "status", "[ $CNI_COMMAND != STATUS ] || exit 0\nexec $real"),
    mutant(
        "speaks one version",
        "versions",
        "sed 's/\"cniVersion\":\"[0-9.]*\"/\"cniVersion\":\"1.1.0\"/' | $real",
    ),
    mutant("is slow", "rate", "sleep 0.6\nexec $real"),
    mutant("interrupts other ports", "rate", "ip link set near down\nip link set near up\nexec $real"),
];
