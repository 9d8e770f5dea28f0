# The second program of a guest, on the host's file system: completes what a
# Linux system has, runs the job and switches off.
set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
# The command line of User-Mode Linux sets both.
: "${terminal:=hvc0}" "${share:=}"
# What the administrator of the host put there is for the host's processor.
[ "$programs" = own ] || PATH=/usr/local/sbin:/usr/local/bin:$PATH

mkdir -p /run/netns /run/job /dev/pts /dev/shm
for stream in 0:stdin 1:stdout 2:stderr; do
    ln -s "/proc/self/fd/${stream%%:*}" "/dev/${stream#*:}"
done
ln -s /proc/self/fd /dev/fd
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t bpf bpf /sys/fs/bpf
case $share in
    "") mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288 job /run/job ;;
    *) mount -t hostfs -o "$share" none /run/job ;;
esac
ip link set lo up

# The kernel starts modprobe itself when it wants a module.
mkdir -p /lib/modules
mount --bind "$(cat /run/job/modules)" /lib/modules
# But not for these: the device file of the one and the settings of the other come with it.
modprobe --all tun ipv6

# Raw, so that lines arrive as they are written.
stty -F "/dev/$terminal" raw -echo
[ ! -e /run/job/terminal ] || stty -F "/dev/$terminal" sane
: >/run/job/ready

status=0
setsid --ctty --wait sh /run/job/run <"/dev/$terminal" >"/dev/$terminal" 2>&1 || status=$?
# Changing a terminal waits until all output has left.
stty -F "/dev/$terminal" sane
echo "$status" >/run/job/status
sync
echo o >/proc/sysrq-trigger
sleep 60
