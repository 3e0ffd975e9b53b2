package shell

import (
	"os"
	"path"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// In a line such as "ln -s ~/.bashrc l && echo x > l" the redirection does not name the file that it writes, and the
// link does not exist yet when the line is analysed. Therefore the links that a line creates count as existing for all
// of its commands, also for earlier ones: the order of commands in a pipe or in the background is unknown.

// A link is a second name that a command of the line gives to a file.
type link struct {
	by    int    // index of the command that creates the link
	name  string // absolute; if it has wildcards, each match is a link, to the file of the same name in the directory to
	to    string // the target, or its directory; relative to the directory of name unless it is absolute
	moved bool   // name is a move or copy of to, and thus only a link if to is a link
}

// linkers are the commands that create links.
var linkers = []string{"ln", "link", "cp", "mv", "mount", "bindfs"}

// maxMadeLinks is how many links of a line are followed, since each path of the line is resolved once for each link. If
// there are more, any file may be written through a link.
const maxMadeLinks = 16

// throughLinks returns the dangers of existing links through which a copy writes, and of links that the line creates.
func (a *Analysis) throughLinks(at *pathrule.Place, guard pathrule.Protected) []Danger {
	var out []Danger
	hasLinker := false
	for i := range a.cmds {
		if c := &a.cmds[i]; c.Reason != "" { // it is not read-only
			out = append(out, c.copyDangers(at, guard)...)
			hasLinker = hasLinker || slices.Contains(linkers, c.name)
		}
	}
	if !hasLinker {
		return out
	}
	v := view{at: *at, guard: guard, results: map[string]string{}}
	newLink := false // a command creates a link that is not the move or copy of a link
	for i := range a.cmds {
		made, complete := linksOf(&a.cmds[i], i)
		v.links = append(v.links, made...)
		if !complete {
			v.unknown = append(v.unknown, i)
		}
		newLink = newLink || slices.ContainsFunc(made, func(l link) bool { return !l.moved }) || !complete && !a.cmds[i].moves()
	}
	if n := len(v.links); n > maxMadeLinks { // two are enough: danger needs one command other than the current
		v.unknown, v.links = append(v.unknown, v.links[0].by, v.links[n-1].by), nil
	}
	if !newLink {
		v.unknown = nil // these are moves and copies, and the line creates no link that they could move or copy
	}
	for i := range a.cmds {
		if d := v.danger(&a.cmds[i], i); d.Reason != "" {
			out = append(out, d)
		}
	}
	return out
}

// A view resolves paths with the links that the line creates.
type view struct {
	at      pathrule.Place
	guard   pathrule.Protected
	links   []link
	unknown []int             // indexes of commands that create unknown links
	results map[string]string // cache of onlyThroughLinks with all links, by "w" (write) or "r" (read) and the path
}

// danger returns the danger of the command c at index i that depends on links created by other commands.
func (v *view) danger(c *command, i int) Danger {
	if c.Reason != "" && (len(c.targets) > 0 || c.effects&unknown != 0) {
		if slices.ContainsFunc(v.unknown, func(by int) bool { return by != i }) {
			return Danger{Dynamic, c.String() + ": it may write through a link that an earlier command makes"}
		}
		for _, name := range c.touched() {
			hit := func(at pathrule.Place) string { return v.guard.Hit(at, name) }
			if why := v.onlyThroughLinks("w"+name, i, hit); why != "" {
				return Danger{Guarded, c.String() + ": " + why}
			}
		}
	}
	if c.onlyMetadata() {
		return Danger{}
	}
	for _, op := range c.reads {
		for _, name := range c.paths(op.arg) {
			secret := func(at pathrule.Place) string { return at.Secret(name) }
			if why := v.onlyThroughLinks("r"+name, i, secret); why != "" {
				return Danger{Credentials, c.String() + ": " + why}
			}
		}
	}
	return Danger{}
}

// onlyThroughLinks returns the result of check with the links of the line, except those of the command at index i. It
// returns "" if check finds something also without links, which is reported elsewhere. Several links may have the same
// name, of which the first is followed; so check is called once for each link, with that link in front.
func (v *view) onlyThroughLinks(key string, i int, check func(pathrule.Place) string) string {
	links := slices.DeleteFunc(slices.Clone(v.links), func(l link) bool { return l.by == i })
	all := len(links) == len(v.links)
	if why, ok := v.results[key]; ok && all {
		return why
	}
	why := ""
	for k := 0; k < len(links) && why == ""; k++ {
		links[0], links[k] = links[k], links[0]
		at := v.at
		at.Readlink = readlinkWith(links, v.at.Target)
		why = check(at)
	}
	if why != "" && check(v.at) != "" {
		why = ""
	}
	if all {
		v.results[key] = why
	}
	return why
}

// readlinkWith returns readlink with additional links that do not exist yet.
func readlinkWith(links []link, readlink func(string) (string, error)) func(string) (string, error) {
	return func(name string) (string, error) {
		hasLink := false // name is a directory with one of the links
		for k, l := range links {
			matches, err := path.Match(pathrule.ShellPattern(l.name), name)
			matches = matches && err == nil || l.name == name
			hasLink = hasLink || pathrule.Below(l.name, name)
			switch {
			case matches && !l.moved:
				return path.Join(l.to, wildcardPart(l, name)), nil
			case !l.moved || !matches && !pathrule.Below(name, l.name):
				continue
			}
			// l gives another file this name: it is a link if that file is one. Other moves to this name need no look, since
			// the caller puts each of them in front once.
			rest := slices.Delete(slices.Clone(links), k, k+1)
			if to, err := readlinkWith(rest, readlink)(l.to + strings.TrimPrefix(name, l.name)); err == nil {
				return to, nil
			}
			break
		}
		to, err := readlink(name)
		if hasLink && os.IsNotExist(err) {
			err = os.ErrInvalid // the directory exists when the link does, and is not a link itself
		}
		return to, err
	}
}

// wildcardPart returns the name that the wildcards at the end of a link match: "ln -s dir/* ." creates a link
// with the same name for each match.
func wildcardPart(l link, name string) string {
	if l.name == name {
		return ""
	}
	return path.Base(name)
}

// linksOf returns the links that the command c at index i creates, and whether the list is complete.
func linksOf(c *command, i int) (links []link, complete bool) {
	if c.Reason == "" || !slices.Contains(linkers, c.name) {
		return nil, true
	}
	symbolic := c.name == "ln" && hasOption(c, 's', "--symbolic") && !hasOption(c, 'r', "--relative")
	moves := c.moves()
	if moves && c.name == "cp" && !hasOption(c, 'a', "--archive") && !hasOption(c, 'd', "--no-dereference") &&
		!hasOption(c, 'P', "--no-dereference") && !hasOption(c, 'r', "--recursive") && !hasOption(c, 'R', "--recursive") {
		return nil, true // the copy is a separate file
	}
	sources, names := c.copied()
	complete = len(names) > 0
	for _, name := range names {
		for _, src := range sources {
			made, ok := linksTo(c, name, src, symbolic)
			links, complete = append(links, made...), complete && ok
		}
	}
	for k := range links {
		links[k].by, links[k].moved = i, moves
	}
	return links, complete
}

// copyTargets returns the files that a copy creates if its target is a directory. The directory may contain a link with
// the name of the file, through which cp and install would write.
func (c *command) copyTargets() []operand {
	if !slices.Contains([]string{"cp", "mv", "install"}, c.name) {
		return nil
	}
	sources, names := c.copied()
	var out []operand
	for _, name := range names {
		for _, src := range sources {
			if name.known && src.known {
				out = append(out, operand{arg: literal(name.text + "/" + path.Base(src.text))})
			}
		}
	}
	return out
}

// copied returns the files that c copies, moves or links, and their new names.
func (c *command) copied() (sources, names []arg) {
	for _, op := range c.reads {
		sources = append(sources, op.arg)
	}
	for _, t := range c.targets {
		if t.delete {
			sources = append(sources, t.arg)
		} else {
			names = append(names, t.arg)
		}
	}
	return sources, names
}

// copyDangers returns the danger of a copy into a directory. It does not look on the disk whether the target is a
// directory. Unless the command line shows that it must be, only those copyTargets count that are existing links.
func (c *command) copyDangers(at *pathrule.Place, guard pathrule.Protected) []Danger {
	for _, op := range c.copyTargets() {
		dir := path.Dir(op.text)
		// There are several files, or the target is DIR/ (op is then DIR//FILE), "." or "..".
		mustBeDirectory := len(c.reads)+len(c.targets) > 2 || strings.HasSuffix(strings.TrimSuffix(op.text, path.Base(op.text)), "//") || path.Base(dir) == "." || path.Base(dir) == ".."
		for _, name := range c.paths(op.arg) {
			if _, err := at.Target(name); !mustBeDirectory && err != nil {
				continue
			}
			if why := guard.Hit(*at, name); why != "" {
				return []Danger{{Guarded, c.String() + ": " + why}}
			}
		}
	}
	return nil
}

// moves reports whether c moves or copies: what it creates is only a link if the source is a link.
func (c *command) moves() bool {
	return c.name == "mv" || c.name == "cp" && !hasOption(c, 'l', "--link") && !hasOption(c, 's', "--symbolic-link")
}

// linksTo returns the links from name to src: name itself, and an entry of name in case that is a directory. ok is false
// if they are unknown.
func linksTo(c *command, name, src arg, symbolic bool) (links []link, ok bool) {
	names := c.paths(name)
	if len(names) == 0 || strings.Contains(src.text, hole) {
		return nil, false
	}
	for k, n := range names { // if name is relative, names[k] is in cwds[k]
		targets := []string{src.text}
		switch {
		case symbolic || len(c.cwds) == 0:
		case path.IsAbs(name.text):
			targets = resolveAll(c.cwds, src.text)
		default:
			targets = resolveAll(c.cwds[k:k+1], src.text)
		}
		for _, to := range targets {
			if src.wild {
				links = append(links, link{name: path.Join(n, path.Base(to)), to: path.Dir(to)})
			} else {
				links = append(links, link{name: n, to: to}, link{name: path.Join(n, path.Base(to)), to: to})
			}
		}
	}
	return links, true
}
