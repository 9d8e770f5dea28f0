#!/bin/busybox sh
# The first program of a guest: makes the host's file system its own and goes
# on there. What it writes stays in memory: the host's is read-only.
set -e
export PATH=/bin
busybox mkdir -p /proc /sys /dev /host /memory /root
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -t devtmpfs dev /dev

while read -r module; do
    busybox insmod "/modules/$module"
done </modules/order

# Nothing changes there while the guest runs, so everything may be cached.
case $share in
    "") busybox mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=524288,cache=loose root /host ;;
    *) busybox mount -t hostfs -o ro,/ none /host ;;
esac
layers=/host
# A guest that cannot run the host's programs has its own over them.
if [ "$programs" = own ]; then
    busybox mkdir /programs
    busybox mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=524288,cache=loose programs /programs
    layers=/programs:/host
fi
busybox mount -t tmpfs memory /memory
busybox mkdir /memory/changes /memory/work
busybox mount -t overlay -o lowerdir=$layers,upperdir=/memory/changes,workdir=/memory/work overlay /root

for directory in proc sys dev; do
    busybox mount --move "/$directory" "/root/$directory"
done
busybox mount -t tmpfs run /root/run
busybox cp /guest.sh /root/run/guest.sh
exec busybox switch_root /root /bin/sh /run/guest.sh
