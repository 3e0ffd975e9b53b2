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

// places returns the places for the paths in s and p, in the order of mounting.
func (s *Spec) places(p *plan) ([]place, error) {
	write, err := realDirs(s.Write)
	if err != nil {
		return nil, err
	}
	granted := write
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

// realDirs returns the directories with their links resolved, sorted, without those that are below others.
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
	slices.Sort(out)
	var tops []string
	for _, dir := range out {
		if dirContaining(tops, dir) == "" {
			tops = append(tops, dir)
		}
	}
	return tops, nil
}

func isWithin(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, dir+"/")
}

// dirContaining returns the first of the directories that name equals or is below, or "".
func dirContaining(dirs []string, name string) string {
	for _, dir := range dirs {
		if isWithin(name, dir) {
			return dir
		}
	}
	return ""
}

// protectPlaces returns the places that make names read-only.
func protectPlaces(granted, names []string) []place {
	var out []place
	for _, name := range names {
		info, err := os.Lstat(name)
		if err != nil {
			continue
		}
		dir, err := filepath.EvalSymlinks(filepath.Dir(name))
		real := filepath.Join(dir, filepath.Base(name))
		top := dirContaining(granted, real)
		if err != nil || top == "" || top == real {
			continue
		}
		as := asProtect
		if info.Mode()&os.ModeSymlink != 0 {
			// Only covering a link keeps it from being replaced. Its target is protected by its own name.
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

// pinPlaces returns places that keep the directories above name from being moved. Otherwise the program could move one
// of them, and a later command would find the file unprotected under the new path.
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

// showPlaces returns places for the paths in covered directories that the program needs.
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
		if err == nil && dirContaining(coveredDirs, real) != "" && dirContaining(granted, real) == "" && !slices.Contains(coveredDirs, real) {
			out = append(out, place{real, asShow})
		}
	}
	return out
}

// private returns the devices of the file systems that only the program sees.
func (p *plan) private() []uint32 {
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
			out = append(out, st.Dev_major<<20|st.Dev_minor)
		}
	}
	return out
}

// lines returns the lines of a file in /proc; none if the file cannot be read.
func lines(name string) iter.Seq[string] {
	data, _ := os.ReadFile(name)
	return strings.Lines(string(data))
}

// A cover identifies the file that was at a protected or hidden path before the program ran.
type cover struct {
	name      string
	protected bool // not hidden
	statFlags int  // for statx, which follows links for hidden paths only
	identity  identity
}

// An identity identifies a file; the zero identity means that there is none. An inode number may be reused, but not
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

// covers returns the covers of the paths whose files another program may replace.
func (s *Spec) covers(p *plan) []cover {
	var out []cover
	if !p.ReadProfile {
		for _, name := range s.Protect {
			out = append(out, cover{name, true, unix.AT_SYMLINK_NOFOLLOW, identify(name, unix.AT_SYMLINK_NOFOLLOW)})
		}
	}
	for _, name := range s.Hide {
		out = append(out, cover{name, false, 0, identify(name, 0)})
	}
	return out
}
