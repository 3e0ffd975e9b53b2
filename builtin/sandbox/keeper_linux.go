//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A keeper covers protected and hidden files again whose place another program has given to new
// ones: the cover is lost with the old one, or goes where that is moved.
type keeper struct {
	events int            // of inotify; -1 if there are none
	dirs   map[int]string // by watch
	places map[string]keptPlace

	hiddenFile, hiddenDir int // what hides
}

type keptPlace struct {
	as    string
	mount uint64 // the number of the cover
}

func newKeeper() (k *keeper, err error) {
	k = &keeper{dirs: map[int]string{}, places: map[string]keptPlace{}}
	if k.events, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		k.events = -1 // too many are in use: what was replaced is reported at the end
	}
	if k.hiddenFile, err = enter(base + "/hidden/file"); err != nil {
		return nil, err
	}
	k.hiddenDir, err = enter(base + "/hidden/directory")
	return k, err
}

// keep has the place covered again; the tree is its cover, not attached yet.
func (k *keeper) keep(t tree, as string) {
	var st unix.Statx_t
	if k.events < 0 || unix.Statx(t.fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st) != nil {
		return
	}
	dir := filepath.Dir(t.at)
	watch, err := unix.InotifyAddWatch(k.events, dir, unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ONLYDIR)
	if err == nil {
		k.dirs[watch], k.places[t.at] = dir, keptPlace{as, st.Mnt_id}
	}
}

// look covers what has appeared where a cover was.
func (k *keeper) look() {
	buf := make([]byte, 64<<10)
	n, err := unix.Read(k.events, buf)
	if err != nil {
		return
	}
	for buf = buf[:n]; len(buf) >= unix.SizeofInotifyEvent; {
		event := (*unix.InotifyEvent)(unsafe.Pointer(&buf[0]))
		end := unix.SizeofInotifyEvent + int(event.Len)
		name, _, _ := bytes.Cut(buf[unix.SizeofInotifyEvent:end], []byte{0})
		buf = buf[end:]
		if event.Mask&unix.IN_Q_OVERFLOW != 0 {
			for at := range k.places {
				k.cover(at)
			}
		} else if dir, ok := k.dirs[int(event.Wd)]; ok {
			k.cover(filepath.Join(dir, string(name)))
		}
	}
}

func (k *keeper) cover(name string) {
	kept, ok := k.places[name]
	if !ok {
		return
	}
	at, err := enter(name)
	if err != nil {
		return
	}
	defer unix.Close(at)
	var st unix.Statx_t
	if unix.Statx(at, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st) != nil || st.Mnt_id == kept.mount {
		return
	}
	from := at
	if kept.as == asHide {
		if from = k.hiddenFile; isDir(at) {
			from = k.hiddenDir
		}
	}
	t, err := cloneMount(from, name, plain|unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		return
	}
	if unix.Statx(t.fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st) == nil {
		k.places[name] = keptPlace{kept.as, st.Mnt_id}
	}
	t.attach()
}
