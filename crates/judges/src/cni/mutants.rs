//! Plugins with a fault, each by a script in the plugin's place, and the check that has to find it.

use crate::examination::Mutant;

/// All broken plugins. The fault is lines of a shell: `$real` is the plugin, `$directory` the bench's.
pub(super) const MUTANTS: &[Mutant<&str>] = &[
    Mutant(
        "says another address",
        "add",
        "[ $CNI_COMMAND = ADD ] || exec $real\n$real | sed s/10.88.0/10.88.1/",
    ),
    Mutant(
        "leaves the interface down",
        "add",
        "$real || exit\n[ $CNI_COMMAND != ADD ] || nsenter --net=$CNI_NETNS ip link set $CNI_IFNAME down",
    ),
    Mutant("compares nothing", "check", "[ $CNI_COMMAND != CHECK ] || exit 0\nexec $real"),
    Mutant(
        "replaces the first attachment",
        "twice",
        "cat >$directory/in.$$\n[ $CNI_COMMAND != ADD ] || CNI_COMMAND=DEL $real <$directory/in.$$\n\
         exec $real <$directory/in.$$",
    ),
    Mutant("deletes nothing", "delete", "[ $CNI_COMMAND != DEL ] || exit 0\nexec $real"),
    Mutant("keeps the address", "delete", "[ $CNI_COMMAND = DEL ] || exec $real\nsed s/host-local// | $real"),
    Mutant(
        "wants ADD before DEL",
        "out of order",
        "[ $CNI_COMMAND != DEL ] || ls $directory/conf.d/cni* >/dev/null || exit 1\nexec $real",
    ),
    Mutant(
        "wants the namespace for DEL",
        "namespace gone",
        "[ $CNI_COMMAND != DEL ] || [ -e $CNI_NETNS ] || exit 1\nexec $real",
    ),
    Mutant(
        "keeps the address of an ADD that failed",
        "failed ADD",
        "cat >$directory/in.$$\n$real <$directory/in.$$ && exit\n\
         [ $CNI_COMMAND != ADD ] || $directory/bin/host-local <$directory/in.$$ >/dev/null\nexit 1",
    ),
    Mutant(
        "wants the gateway for DEL",
        "gateway down",
        "[ $CNI_COMMAND != DEL ] || [ -S $directory/gateway.sock ] || exit 0\nexec $real",
    ),
    Mutant("keeps no file", "restart", "$real || exit\n[ $CNI_COMMAND != ADD ] || rm $directory/conf.d/cni*"),
    Mutant(
        "keeps the file of a port that goes",
        "reloads",
        "[ $CNI_COMMAND = DEL ] || exec $real\nmkdir $directory/kept.$$\n\
         cp $directory/conf.d/cni* $directory/kept.$$\n$real\ncp $directory/kept.$$/* $directory/conf.d",
    ),
    Mutant("holds nothing", "pinned", "sed 's/\"bridge\"/\"sourceGuard\":false,\"bridge\"/' | $real"),
    Mutant(
        "holds the station alone",
        "pinned",
        "$real || exit\n[ $CNI_COMMAND = ADD ] || exit 0\nsed -i '/^addresses = /d' $directory/conf.d/cni*\n\
         unset CNI_COMMAND\n$directory/bin/real/polder reload --yes --socket $directory/gateway.sock >/dev/null",
    ),
    Mutant("collects nothing", "collect", "[ $CNI_COMMAND != GC ] || exit 0\nexec $real"),
    Mutant(
        "collects everything",
        "collect",
        "[ $CNI_COMMAND = GC ] || exec $real\nsed s/valid-attachments/other/ | $real",
    ),
    Mutant("is always ready", "status", "[ $CNI_COMMAND != STATUS ] || exit 0\nexec $real"),
    Mutant(
        "speaks one version",
        "versions",
        "sed 's/\"cniVersion\":\"[0-9.]*\"/\"cniVersion\":\"1.1.0\"/' | $real",
    ),
    Mutant("is slow", "rate", "sleep 0.6\nexec $real"),
    Mutant("interrupts other ports", "rate", "ip link set near down\nip link set near up\nexec $real"),
];
