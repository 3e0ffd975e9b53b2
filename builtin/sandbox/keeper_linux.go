//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// A keeper covers protected and hidden paths again after another program has replaced the file there. Removing the
// file removes the mount that covers it; renaming the file moves the mount with it.
type keeper struct {
	places                []keptPlace
	hiddenFile, hiddenDir int // descriptors of the file and the directory that hide others

	gap time.Duration // twice the time until the next check, while a place has no file
}

type keptPlace struct {
	name  string
	as    string // asProtect or asHide
	mount uint64 // id of the mount that covers the place
}

// The intervals of the checks: short while a place has no file, otherwise long. Watching the directories (inotify)
// would notice changes earlier, but stopping it takes the kernel some milliseconds, which would delay the end of
// each command.
const (
	lookNever  = -time.Millisecond
	lookOften  = time.Millisecond
	lookRarely = 50 * time.Millisecond
)

func newKeeper() (k *keeper, err error) {
	k = new(keeper)
	if k.hiddenFile, err = enter(base + "/hidden/file"); err != nil {
		return nil, err
	}
	k.hiddenDir, err = enter(base + "/hidden/directory")
	return k, err
}

// keep adds a place to cover again. t is the mount that will cover it first; it is not attached yet.
func (k *keeper) keep(t tree, as string) error {
	mount, err := mountOf(t.fd)
	k.places = append(k.places, keptPlace{t.at, as, mount})
	return err
}

// look covers files that have appeared at places whose cover was lost. It returns the longest time until the next
// check.
func (k *keeper) look() time.Duration {
	if len(k.places) == 0 {
		return lookNever
	}
	empty := false
	for i := range k.places {
		if errors.Is(k.cover(&k.places[i]), unix.ENOENT) {
			empty = true
		}
	}
	if !empty {
		k.gap = lookOften
		return lookRarely
	}
	k.gap = min(2*max(k.gap, lookOften), lookRarely)
	return k.gap / 2
}

// cover covers the place unless it is covered. The kernel reports a lost cover before the new file is in its place,
// so this may take several attempts: cover returns ENOENT if the place must be checked again soon.
func (k *keeper) cover(p *keptPlace) error {
	for range 10 {
		at, err := enter(p.name)
		if err != nil {
			return err
		}
		covered, err := k.coverOpen(p, at)
		unix.Close(at)
		if covered || err != nil {
			return err
		}
	}
	return unix.ENOENT
}

// coverOpen covers the place, which is open as at, and reports whether it was covered already.
func (k *keeper) coverOpen(p *keptPlace, at int) (covered bool, err error) {
	if mount, err := mountOf(at); err != nil || mount == p.mount {
		return true, err
	}
	from := at
	if p.as == asHide {
		if from = k.hiddenFile; isDir(at) {
			from = k.hiddenDir
		}
	}
	t, err := cloneMount(from, p.name, plain|unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		return false, err
	}
	if p.mount, err = mountOf(t.fd); err != nil {
		unix.Close(t.fd)
		return false, err
	}
	t.attach() // the next attempt notices a failure
	return false, nil
}

// mountOf returns the id of the mount that an open path is in.
func mountOf(fd int) (uint64, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st)
	return st.Mnt_id, err
}
