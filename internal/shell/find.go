package shell

import (
	"path"
	"slices"
	"strings"
)

// The predicates of find, by how many arguments follow.
var (
	findAlone = strings.Fields(`-daystart -depth -follow -ignore_readdir_race -noignore_readdir_race -mount -xdev -noleaf
		-nowarn -warn -empty -executable -false -true -nogroup -nouser -readable -writable -ls -print -print0 -prune -quit
		-a -and -o -or -not ! ( ) , -d -x -X -s`)
	findOne = strings.Fields(`-maxdepth -mindepth -regextype -amin -anewer -atime -cmin -cnewer -ctime -fstype -gid -group
		-ilname -iname -inum -ipath -iregex -iwholename -links -lname -mmin -mtime -name -newer -path -perm -regex -samefile
		-size -type -uid -used -user -wholename -xtype -context -printf -files0-from
		-newermt -newerat -newerct -neweraa -newerac -neweram -newerca -newercc -newercm -newerma -newermc -newermm -Btime -Bmin`)
	findHarmful = strings.Fields("-delete -exec -execdir -ok -okdir -fls -fprint -fprint0 -fprintf")
)

// findArgs reads find's paths and expression.
func findArgs(w *walker, c *command, p *parsed) string {
	args := c.args[1:]
	i := 0
	for i < len(args) && args[i].known {
		// What may stand before the starting points, find(1), OPTIONS.
		switch t := args[i].text; {
		case t == "-H" || t == "-L" || t == "-P" || strings.HasPrefix(t, "-O"):
			i++
			continue
		case t == "-D" && i+1 < len(args):
			i += 2
			continue
		}
		break
	}
	var starts []arg
	for ; i < len(args) && !expression(args[i]); i++ {
		starts = append(starts, args[i])
	}
	why := ""
	for _, a := range starts {
		if a.option() && !a.known {
			why = a.raw + " may turn out to be part of the expression"
		}
	}
	if rest := findExpression(w, p, args[i:], starts); rest != "" {
		why = rest
	}
	for _, a := range starts {
		p.ops = append(p.ops, roleArg{arg: a, kind: 'r'})
	}
	return why
}

// expression reports whether a begins the expression: find(1) ends the starting
// points at the first "-", "(" or "!".
func expression(a arg) bool {
	if !a.known {
		return false
	}
	return a.text != "" && (a.text[0] == '-' && len(a.text) > 1 || a.text == "(" || a.text == ")" || a.text == "!" || a.text == ",")
}

// findExpression goes through the predicates. An unknown one ends the proof,
// but not the walk: deny rules want to see what a later -exec runs.
func findExpression(w *walker, p *parsed, args, starts []arg) string {
	self := len(w.cmds) - 1
	why := ""
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case !a.known:
			if bad := couldBeHarmful(a); bad != "" && why == "" {
				why = bad
			}
		case slices.Contains(findAlone, a.text):
		case slices.Contains(findOne, a.text):
			if i++; i < len(args) && !args[i].known {
				if bad := couldBeHarmful(args[i]); bad != "" && why == "" {
					why = bad
				}
			}
		case a.text == "-delete":
			if p.effects.has(Delete) {
				continue
			}
			p.effects |= effect(Delete)
			if len(starts) == 0 {
				starts = []arg{literal(".")}
			}
			for _, s := range starts {
				p.ops = append(p.ops, roleArg{arg: s, kind: 'd'})
			}
		case slices.Contains(findHarmful, a.text):
			n := findAction(w, p, self, args[i:], starts)
			i += n
		default:
			why = "the predicate " + a.text + " is not on the list"
		}
	}
	return why
}

// couldBeHarmful returns why a word that is not literal may do harm in find's
// expression, or "".
func couldBeHarmful(a arg) string {
	if a.field && a.lead {
		return ""
	}
	if a.wild && !strings.Contains(a.text, hole) {
		safe := true
		for _, h := range findHarmful {
			if ok, err := path.Match(a.text, h); ok || err != nil {
				safe = false
			}
		}
		if safe {
			return ""
		}
	}
	return a.raw + " may turn out to be an action"
}

// findAction notes what -exec and the file-writing actions do, and returns how
// many arguments they take.
func findAction(w *walker, p *parsed, self int, args, starts []arg) int {
	name := args[0].text
	if strings.HasPrefix(name, "-f") {
		p.effects |= effect(Write)
		if len(args) > 1 {
			p.ops = append(p.ops, roleArg{arg: args[1], kind: 'w'})
		}
		if name == "-fprintf" {
			return min(2, len(args)-1)
		}
		return min(1, len(args)-1)
	}
	p.effects |= effect(Exec)
	end := 1
	for end < len(args) && !(args[end].known && (args[end].text == ";" || args[end].text == "+")) {
		end++
	}
	var cmd []arg
	for _, a := range args[1:end] {
		if strings.Contains(a.text, "{}") {
			// The names found start with where the search started.
			for _, s := range starts {
				one := arg{text: strings.ReplaceAll(a.text, "{}", s.text+"/"+hole), raw: a.raw, field: true, lead: true}
				cmd = append(cmd, one)
			}
			if len(starts) > 0 {
				starts = starts[:1] // once is enough for the danger analysis
				continue
			}
			a = arg{text: strings.ReplaceAll(a.text, "{}", "./"+hole), raw: a.raw, field: true, lead: true}
		}
		cmd = append(cmd, a)
	}
	if len(cmd) > 0 {
		w.inside(self, func() { w.simple(cmd, joinRaw(args[1:end]), "") })
	}
	return end
}
