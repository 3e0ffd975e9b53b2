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
	hiddenFile, hiddenDir int // descriptors of the file and the directory that cover hidden paths

	interval time.Duration // until the next check, while a place has no file
}

type keptPlace struct {
	place        // with asProtect or asHide
	mount uint64 // id of the mount that covers the place
}

// The intervals of the checks. While a place has no file, they double from lookOften to half of lookRarely. Watching
// the directories (inotify) would notice changes earlier, but stopping the watches takes the kernel some milliseconds,
// which would delay the end of each command.
const (
	lookNever  = -time.Millisecond // a poll without timeout
	lookOften  = time.Millisecond
	lookRarely = 50 * time.Millisecond
)

func newKeeper() (k *keeper, err error) {
	k = &keeper{interval: lookOften}
	if k.hiddenFile, err = enter(base + "/hidden/file"); err != nil {
		return nil, err
	}
	k.hiddenDir, err = enter(base + "/hidden/directory")
	return k, err
}

// keep adds a place to cover again. The tree, which is not attached yet, will be the place's first cover.
func (k *keeper) keep(t tree) error {
	mount, err := mountOf(t.fd)
	k.places = append(k.places, keptPlace{place{t.at, t.as}, mount})
	return err
}

// look covers files that have appeared at places whose cover was lost. It returns the time until the next check, which
// is made earlier if mounts change.
func (k *keeper) look() time.Duration {
	if len(k.places) == 0 {
		return lookNever
	}
	fileMissing := false
	for i := range k.places {
		if errors.Is(k.cover(&k.places[i]), unix.ENOENT) {
			fileMissing = true
		}
	}
	if !fileMissing {
		k.interval = lookOften
		return lookRarely
	}
	interval := k.interval
	k.interval = min(2*interval, lookRarely/2)
	return interval
}

// cover covers the place unless it is covered. It returns ENOENT if the place must be checked again soon: the kernel
// reports a lost cover before the new file is there, and another program may replace the file during each attempt.
func (k *keeper) cover(p *keptPlace) error {
	for range 10 {
		at, err := enter(p.Name)
		if err != nil {
			return err
		}
		wasCovered, err := k.coverOpen(p, at)
		unix.Close(at)
		if wasCovered || err != nil {
			return err
		}
	}
	return unix.ENOENT
}

// coverOpen covers the place, whose open file is at, and reports whether the place was covered already.
func (k *keeper) coverOpen(p *keptPlace, at int) (wasCovered bool, err error) {
	if mount, err := mountOf(at); err != nil || mount == p.mount {
		return true, err
	}
	t, err := k.newCover(p.place, at)
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

// newCover returns a tree that covers the place, whose open file is at.
func (k *keeper) newCover(p place, at int) (tree, error) {
	from := at // a protected file is covered by a read-only copy of its own mount
	if p.As == asHide {
		if from = k.hiddenFile; isDir(at) {
			from = k.hiddenDir
		}
	}
	return cloneMount(from, p.Name, noSuidNoDev|unix.MOUNT_ATTR_RDONLY)
}

// hidingTree returns the descriptor of a tree that hides name, or -1 if the program cannot read name anyway.
func (k *keeper) hidingTree(name string) (fd int, err error) {
	at, err := enter(name)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOTDIR) {
		return -1, nil // removed, covered, or not accessible to this user
	} else if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	t, err := k.newCover(place{name, asHide}, at)
	return t.fd, err
}

// mountOf returns the id of the mount that an open path is in.
func mountOf(fd int) (uint64, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st)
	return st.Mnt_id, err
}
