package shell

import (
	"os"
	"path"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// In a line such as "ln -s ~/.bashrc l && echo x > l" the redirection does not name the file that it writes. The
// link does not exist yet when the line is analysed. Therefore the links that a line creates are treated as
// existing for all of its commands, because the order of commands in a pipe or in the background is unknown.

// A link is a second name that a command of the line gives to a file.
type link struct {
	by    int    // index of the command that creates it
	name  string // absolute; with wildcards, there is a link for each match
	to    string // its target, relative to the directory of name unless it is absolute
	moved bool   // a move or copy of to, so it is only a link if to is one
}

// linkers are the commands that create links.
var linkers = []string{"ln", "link", "cp", "mv", "mount", "bindfs"}

// maxMadeLinks is how many links of a line are followed. The limit exists because each path of the line is
// resolved once for each link. If there are more, the targets of the line count as unknown.
const maxMadeLinks = 16

// throughLinks returns the dangers that depend on links which the line itself creates.
func (a *Analysis) throughLinks(at *pathrule.Place, guard pathrule.Protected) []Danger {
	var out []Danger
	makesLinks := false
	for i := range a.cmds {
		if c := &a.cmds[i]; c.Reason != "" {
			out = append(out, c.copyDangers(at, guard)...)
			makesLinks = makesLinks || slices.Contains(linkers, c.name)
		}
	}
	if !makesLinks {
		return out
	}
	v := view{at: *at, guard: guard, known: map[string]string{}}
	fresh := false // whether there are new links
	for i := range a.cmds {
		made, ok := linksOf(&a.cmds[i], i)
		v.links = append(v.links, made...)
		if !ok {
			v.unknown = append(v.unknown, i)
		}
		fresh = fresh || slices.ContainsFunc(made, func(l link) bool { return !l.moved }) || !ok && !a.cmds[i].moves()
	}
	if n := len(v.links); n > maxMadeLinks {
		v.unknown, v.links = append(v.unknown, v.links[0].by, v.links[n-1].by), nil
	}
	if !fresh {
		v.unknown = nil // copies and moves no longer create unknown links
	}
	for i := range a.cmds {
		if d := v.judge(&a.cmds[i], i); d.Reason != "" {
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
	unknown []int             // commands that create unknown links
	known   map[string]string // results of checks by question
}

// judge returns the danger of the command at index i that depends on links created by the other commands.
func (v *view) judge(c *command, i int) Danger {
	if c.Reason != "" && (len(c.targets) > 0 || c.effects&unknown != 0) {
		if slices.ContainsFunc(v.unknown, func(by int) bool { return by != i }) {
			return Danger{Dynamic, c.String() + ": it may write through a link that an earlier command makes"}
		}
		for _, name := range c.touched() {
			hit := func(at pathrule.Place) string { return v.guard.Hit(at, name) }
			if why := v.ask("w"+name, i, hit); why != "" {
				return Danger{Guarded, c.String() + ": " + why}
			}
		}
	}
	if c.metadata() {
		return Danger{}
	}
	for _, op := range c.reads {
		for _, name := range c.paths(op.arg) {
			secret := func(at pathrule.Place) string { return at.Secret(name) }
			if why := v.ask("r"+name, i, secret); why != "" {
				return Danger{Credentials, c.String() + ": " + why}
			}
		}
	}
	return Danger{}
}

// ask returns the result of check with the links that commands other than the one at index by create, if it differs
// from the result without them. Because a name may have several targets, each link takes precedence once.
func (v *view) ask(question string, by int, check func(pathrule.Place) string) string {
	others := slices.DeleteFunc(slices.Clone(v.links), func(l link) bool { return l.by == by })
	shared := len(others) == len(v.links)
	if why, ok := v.known[question]; ok && shared {
		return why
	}
	found := ""
	for k := 0; k < len(others) && found == ""; k++ {
		others[0], others[k] = others[k], others[0]
		through := v.at
		through.Readlink = readThrough(others, v.at.Target)
		found = check(through)
	}
	if found != "" && check(v.at) != "" {
		found = "" // reported already
	}
	if shared {
		v.known[question] = found
	}
	return found
}

// readThrough returns readlink with additional links that do not exist yet.
func readThrough(links []link, readlink func(string) (string, error)) func(string) (string, error) {
	return func(name string) (string, error) {
		below := false
		for k, l := range links {
			fits, err := path.Match(pathrule.ShellPattern(l.name), name)
			fits = fits && err == nil || l.name == name
			below = below || pathrule.Below(l.name, name)
			switch {
			case fits && !l.moved:
				return path.Join(l.to, wildcardPart(l, name)), nil
			case !l.moved || !fits && !pathrule.Below(name, l.name):
				continue
			}
			// The first match is sufficient, because each link comes first once.
			rest := slices.Delete(slices.Clone(links), k, k+1)
			if to, err := readThrough(rest, readlink)(l.to + strings.TrimPrefix(name, l.name)); err == nil {
				return to, nil
			}
			break
		}
		to, err := readlink(name)
		if below && os.IsNotExist(err) {
			err = os.ErrInvalid // name is a directory
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

// linksOf returns the links that the command at index i creates, and whether the list is complete.
func linksOf(c *command, i int) ([]link, bool) {
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
	var out []link
	whole := len(names) > 0
	for _, name := range names {
		for _, src := range sources {
			made, ok := linksTo(c, name, src, symbolic)
			for k := range made {
				made[k].by, made[k].moved = i, moves
			}
			out, whole = append(out, made...), whole && ok
		}
	}
	return out, whole
}

// copyTargets returns the targets of a copy into a directory. They matter because the directory may contain a
// link with the name of the file, through which cp and install would write.
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

// copyDangers returns the danger of a copy into a directory. It does not check whether the target is a
// directory: a target that only has a name counts if the command says that it is a directory, and otherwise
// only if a link exists there.
func (c *command) copyDangers(at *pathrule.Place, guard pathrule.Protected) []Danger {
	for _, op := range c.copyTargets() {
		dir := path.Dir(op.text)
		sure := len(c.reads)+len(c.targets) > 2 || strings.HasSuffix(strings.TrimSuffix(op.text, path.Base(op.text)), "//") || path.Base(dir) == "." || path.Base(dir) == ".."
		for _, name := range c.paths(op.arg) {
			if _, err := at.Target(name); !sure && err != nil {
				continue
			}
			if why := guard.Hit(*at, name); why != "" {
				return []Danger{{Guarded, c.String() + ": " + why}}
			}
		}
	}
	return nil
}

// moves reports whether c only creates a link if its source is one.
func (c *command) moves() bool {
	return c.name == "mv" || c.name == "cp" && !hasOption(c, 'l', "--link") && !hasOption(c, 's', "--symbolic-link")
}

// linksTo returns the links from name to src: name itself, or an entry of it if it is a directory.
func linksTo(c *command, name, src arg, symbolic bool) ([]link, bool) {
	names := c.paths(name)
	if len(names) == 0 || strings.Contains(src.text, hole) {
		return nil, false
	}
	var out []link
	for k, n := range names {
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
				out = append(out, link{name: path.Join(n, path.Base(to)), to: path.Dir(to)})
			} else {
				out = append(out, link{name: n, to: to}, link{name: path.Join(n, path.Base(to)), to: to})
			}
		}
	}
	return out, true
}
