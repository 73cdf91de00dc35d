# Files of a machine: `/etc` and `/usr/local` of the host with changes of its own, and an empty home, `/tmp` and `/run`.
# Standard input is open as long as the machine is wanted.
files=$1 root=$2 program=$3
hostname "$0"
mount -t tmpfs tmpfs "$root"
for directory in etc usr/local; do
    mkdir -p "$root/$directory/new" "$root/$directory/work"
    mount -t overlay overlay "/$directory" \
        -o "lowerdir=/$directory,upperdir=$root/$directory/new,workdir=$root/$directory/work"
done
mkdir -p /etc/polder /etc/systemd/system
cp "$(command -v "$program")" /usr/local/bin/polder
for name in sudo systemctl journalctl; do
    install -m 0755 "$files/$name" /usr/local/bin/"$name"
done
cp "$files/polder.service" /etc/systemd/system/
for directory in root tmp run; do
    mount -t tmpfs tmpfs "/$directory"
done
mount -t bpf bpf /sys/fs/bpf
echo ready
exec cat > /dev/null
