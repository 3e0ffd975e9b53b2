//go:build amd64 || arm64

package sandbox

import (
	"cmp"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// places returns the places for the paths in s and p, in the order of mounting. It leaves out paths that do not exist or
// that this user cannot reach, except in Write.
func (s *Spec) places(p *plan) ([]place, error) {
	granted, err := realDirs(s.Write)
	if err != nil {
		return nil, err
	}
	if p.ReadProfile {
		granted = nil
	}
	var out []place
	for _, dir := range granted {
		out = append(out, place{dir, asWrite})
	}
	if !p.ReadProfile {
		for _, dir := range s.Scratch {
			real, err := filepath.EvalSymlinks(dir)
			if err == nil && dirContaining(granted, real) == "" {
				out = append(out, place{real, asScratch})
			}
		}
		out = append(out, protectPlaces(granted, s.Protect)...)
		out = append(out, p.showPlaces(granted)...)
	}
	for _, name := range s.Hide {
		if real, err := filepath.EvalSymlinks(name); err == nil {
			out = append(out, place{real, asHide})
			out = append(out, pinPlaces(granted, real)...)
		}
	}
	slices.SortFunc(out, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(slices.Index(mountOrder, a.As), slices.Index(mountOrder, b.As)))
	})
	return slices.Compact(out), nil
}

// realDirs returns the directories with links resolved, sorted, without those that are below another of them.
func realDirs(dirs []string) ([]string, error) {
	var out []string
	for _, dir := range dirs {
		if !filepath.IsAbs(dir) {
			return nil, fmt.Errorf("writable directory %q is not an absolute path; write the full path", dir)
		}
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return nil, fmt.Errorf("writable directory: %w; create it, or leave it out", err)
		}
		info, err := os.Stat(real)
		if err != nil {
			return nil, fmt.Errorf("writable directory: %w", err)
		}
		if !info.IsDir() {
			return nil, fmt.Errorf("%s is not a directory; name the directory that contains it", dir)
		}
		if real == "/" || dirContaining([]string{"/proc", "/sys", "/dev"}, real) != "" {
			return nil, fmt.Errorf("%s cannot be granted for writing, because the program could undo its confinement there; name another directory", dir)
		}
		out = append(out, real)
	}
	slices.Sort(out) // parents before their children
	var tops []string
	for _, dir := range out {
		if dirContaining(tops, dir) == "" {
			tops = append(tops, dir)
		}
	}
	return tops, nil
}

// isWithin reports whether name is dir or below it.
func isWithin(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, dir+"/")
}

// dirContaining returns the first of the directories that name is within, or "".
func dirContaining(dirs []string, name string) string {
	for _, dir := range dirs {
		if isWithin(name, dir) {
			return dir
		}
	}
	return ""
}

// protectPlaces returns the places that make names read-only. Names that are not below a granted directory are so already.
func protectPlaces(granted, names []string) []place {
	var out []place
	for _, name := range names {
		info, err := os.Lstat(name)
		if err != nil {
			continue
		}
		dir, err := filepath.EvalSymlinks(filepath.Dir(name))
		if err != nil {
			continue
		}
		real := filepath.Join(dir, filepath.Base(name))
		if top := dirContaining(granted, real); top == "" || top == real {
			continue
		}
		as := asProtect
		if info.Mode()&os.ModeSymlink != 0 {
			// A mount over the link keeps the link from being replaced; the target needs a mount of its own.
			as = asHide
			if target, err := filepath.EvalSymlinks(real); err == nil && dirContaining(granted, target) != "" {
				out = append(out, place{target, asProtect})
			}
		}
		out = append(out, place{real, as})
		out = append(out, pinPlaces(granted, real)...)
	}
	return out
}

// pinPlaces returns places that keep the directories above name from being moved. After a move a later command would
// find the file unprotected under its new path.
func pinPlaces(granted []string, name string) []place {
	top := dirContaining(granted, name)
	if top == "" || top == name {
		return nil
	}
	var out []place
	for dir := filepath.Dir(name); dir != top; dir = filepath.Dir(dir) {
		out = append(out, place{dir, asPin})
	}
	return out
}

// showPlaces returns places for the paths that the program needs and that coveredDirs would hide.
func (p *plan) showPlaces(granted []string) []place {
	names := []string{p.Dir}
	if filepath.IsAbs(p.Path) {
		names = append(names, p.Path)
	}
	if p.Network {
		names = append(names, "/etc/resolv.conf")
	}
	names = append(names, "/run/current-system", "/run/booted-system") // programs on NixOS
	var out []place
	for _, name := range names {
		real, err := filepath.EvalSymlinks(name)
		if err == nil && !slices.Contains(coveredDirs, real) && dirContaining(coveredDirs, real) != "" && dirContaining(granted, real) == "" {
			out = append(out, place{real, asShow})
		}
	}
	return out
}

// privateDevices returns the devices of the file systems that only the program sees.
func (p *plan) privateDevices() []uint32 {
	names := []string{"/dev/shm"}
	for _, pl := range p.Places {
		if pl.As == asScratch && !p.NoScratch {
			names = append(names, pl.Name)
		}
	}
	var out []uint32
	for _, name := range names {
		var st unix.Statx_t
		if unix.Statx(unix.AT_FDCWD, name, 0, unix.STATX_INO, &st) == nil {
			out = append(out, deviceNumber(st.Dev_major, st.Dev_minor))
		}
	}
	return out
}

// lines returns the lines of a file in /proc; none if the file cannot be read.
func lines(name string) iter.Seq[string] {
	data, _ := os.ReadFile(name)
	return strings.Lines(string(data))
}

// A guardedFile identifies the file that was at a protected or hidden path before the program ran.
type guardedFile struct {
	name      string
	protected bool // in Protect, not in Hide
	statFlags int  // for identify: only links in Hide are followed
	identity  identity
}

// An identity identifies a file; the zero identity means that there is no file. An inode number may be reused, but not
// with the same time of birth.
type identity struct {
	major, minor uint32
	inode        uint64
	born         unix.StatxTimestamp
}

func identify(name string, statFlags int) identity {
	var st unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, name, statFlags, unix.STATX_INO|unix.STATX_BTIME, &st) != nil {
		return identity{}
	}
	return identity{st.Dev_major, st.Dev_minor, st.Ino, st.Btime}
}

// guardedFiles returns the files at the protected and hidden paths, which another program may replace.
func (s *Spec) guardedFiles(p *plan) []guardedFile {
	var out []guardedFile
	if !p.ReadProfile {
		for _, name := range s.Protect {
			out = append(out, guardedFile{name, true, unix.AT_SYMLINK_NOFOLLOW, identify(name, unix.AT_SYMLINK_NOFOLLOW)})
		}
	}
	for _, name := range s.Hide {
		out = append(out, guardedFile{name, false, 0, identify(name, 0)})
	}
	return out
}
