//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// A keeper covers protected and hidden files again whose place another program has given to new
// ones: the cover is lost with the old one, of which the kernel tells, or goes where that is moved.
type keeper struct {
	places                []keptPlace
	hiddenFile, hiddenDir int // what hides

	gap time.Duration // until the next look, while a place is empty
}

type keptPlace struct {
	name, as string
	mount    uint64 // the number of the cover
}

// How often the keeper looks: rarely, and while a place is empty, often. Watching the directories
// would be quicker, but it takes the kernel some milliseconds to stop, which each command would wait.
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

// keep has the place covered again; the tree is its cover, not attached yet.
func (k *keeper) keep(t tree, as string) error {
	mount, err := mountOf(t.fd)
	k.places = append(k.places, keptPlace{t.at, as, mount})
	return err
}

// look covers what has appeared where a cover was. It returns when to look again, at the latest.
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

// cover covers the place unless it is covered. The kernel tells of a lost cover before the new file
// is in its place, so that it may take more than one try; it returns ENOENT for what is to be looked
// at again soon.
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

// coverOpen covers the place, which is open, and reports whether it was covered already.
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
	t.attach() // if that fails, the next try sees it
	return false, nil
}

// mountOf returns the number of the mount that an open path is in.
func mountOf(fd int) (uint64, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st)
	return st.Mnt_id, err
}
