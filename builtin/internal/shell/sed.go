package shell

import (
	"errors"
	"slices"
	"strings"
)

// sedArgs checks sed's scripts, which may write files and run programs.
func sedArgs(w *walker, c *command, p *parsed) string {
	scripts, files, why := sedScripts(c)
	if why != "" {
		if why != "the script is not literal" {
			w.alarm(Dynamic, c.String()+": "+why)
		}
		return why
	}
	s := sedParser{text: strings.Join(scripts, "\n")}
	if err := s.parse(); err != nil {
		w.alarm(Dynamic, c.String()+": "+err.Error())
		p.effects |= executing
		return err.Error()
	}
	inPlace := p.has("-i", "--in-place", "-I")
	fileRole := byte('r')
	if inPlace {
		fileRole = 'w'
	}
	for _, name := range s.reads {
		p.ops = append(p.ops, roleArg{arg: literal(name), kind: 'r'})
	}
	for _, f := range files {
		p.ops = append(p.ops, roleArg{arg: f, kind: fileRole})
	}
	if inPlace {
		p.effects |= writing
		for _, o := range []string{"-i", "-I", "--in-place"} {
			if v, ok := p.value(o); ok && !slices.Contains(backups, v.text) {
				return "the backup may be another file than it seems"
			}
		}
	}
	return ""
}

// backups are the usual suffixes of backups. Other suffixes may move a backup into another directory, as "bak/*" does, or
// complete the name of another file: "rc" makes .bashrc of .bash.
var backups = []string{"", "~", ".bak", ".backup", ".old", ".orig"}

// sedScripts returns the scripts and the files among the arguments, or why these are not known.
func sedScripts(c *command) (scripts []string, files []arg, why string) {
	args := c.args[1:]
	hasScript := false
	for i := 0; i < len(args); i++ {
		a := args[i]
		addScript := func(v arg) {
			hasScript = true
			if !v.known {
				why = "the script is not literal"
			}
			scripts = append(scripts, v.text)
		}
		switch {
		case !a.option():
			files = append(files, a)
		case a.text == "--":
			files = append(files, args[i+1:]...)
			i = len(args)
		case a.text == "-f" || strings.HasPrefix(a.text, "--file") || clusterHas(a.text, 'f'):
			return nil, nil, "the script is in a file"
		case strings.HasPrefix(a.text, "--expression="):
			addScript(valueOf(a, len("--expression="), true))
		case a.text == "--expression" || clusterEnds(a.text, 'e'):
			if i++; i < len(args) {
				addScript(args[i])
			}
		case clusterHas(a.text, 'e'):
			addScript(valueOf(a, strings.IndexByte(a.text, 'e')+1, true))
		case clusterEnds(a.text, 'l') || a.text == "--line-length":
			// In versions other than GNU sed -l takes no value, and the script follows it. A number as the script does nothing.
			if i++; i < len(args) && !isNumber(args[i].text) {
				return nil, nil, "-l may be followed by a script"
			}
		}
	}
	if !hasScript {
		if len(files) == 0 {
			return nil, nil, "there is no script"
		}
		if !files[0].known {
			why = "the script is not literal"
		}
		scripts, files = []string{files[0].text}, files[1:]
	}
	return scripts, files, why
}

// clusterHas reports whether text is a bundle of short options with the letter c, not counting the value of -i, -e, -f or -l.
func clusterHas(text string, c byte) bool {
	if len(text) < 2 || text[0] != '-' || text[1] == '-' {
		return false
	}
	for i := 1; i < len(text); i++ {
		if text[i] == c {
			return true
		}
		if strings.IndexByte("iefl", text[i]) >= 0 {
			return false
		}
	}
	return false
}

func clusterEnds(text string, c byte) bool {
	return clusterHas(text, c) && strings.IndexByte(text, c) == len(text)-1
}

// A sedParser parses a script of GNU sed and fails on anything that writes, runs a program, or
// is not supported.
type sedParser struct {
	text  string
	pos   int
	reads []string // names of the files that the commands r and R read
}

var (
	errSedScript = errors.New("the sed script has syntax that is not supported")
	errSedRuns   = errors.New("the sed script runs a program")
	errSedWrites = errors.New("the sed script writes a file")
)

func (s *sedParser) next() byte {
	if s.pos >= len(s.text) {
		return 0
	}
	s.pos++
	return s.text[s.pos-1]
}

func (s *sedParser) peek() byte {
	if s.pos >= len(s.text) {
		return 0
	}
	return s.text[s.pos]
}

func (s *sedParser) skip(set string) {
	for s.pos < len(s.text) && strings.IndexByte(set, s.text[s.pos]) >= 0 {
		s.pos++
	}
}

func (s *sedParser) skipLine() {
	for s.pos < len(s.text) && s.text[s.pos] != '\n' {
		s.pos++
	}
}

func (s *sedParser) parse() error {
	for {
		s.skip(" \t\n;")
		if s.pos >= len(s.text) {
			return nil
		}
		if err := s.addresses(); err != nil {
			return err
		}
		if err := s.command(); err != nil {
			return err
		}
	}
}

func (s *sedParser) addresses() error {
	for range 2 {
		if err := s.address(); err != nil {
			return err
		}
		s.skip(" \t")
		if s.peek() != ',' {
			break
		}
		s.pos++
		s.skip(" \t")
	}
	s.skip(" \t!") // any number of exclamation marks, with blanks between them
	return nil
}

func (s *sedParser) address() error {
	switch c := s.peek(); {
	case c == '$':
		s.pos++
	case c == '/' || c == '\\':
		s.pos++
		if c == '\\' {
			if c = s.next(); c == 0 || c == '\n' || c == '\\' {
				return errSedScript
			}
		}
		if !s.skipPast(c, true) {
			return errSedScript
		}
		s.skip("IM")
	default:
		s.skip("0123456789~+")
	}
	return nil
}

// skipPast skips past the next unescaped delimiter. It fails for a delimiter inside a bracket
// expression, where versions of sed differ.
func (s *sedParser) skipPast(delim byte, regex bool) bool {
	for {
		switch c := s.next(); {
		case c == 0, c == '\n' && regex:
			return false
		case c == '\\':
			if s.next() == 0 {
				return false
			}
		case c == delim:
			return true
		case regex && c == '[':
			end := plainBracket(s.text, s.pos-1, delim)
			if end < 0 {
				return false
			}
			s.pos = end + 1
		}
	}
}

func (s *sedParser) command() error {
	switch c := s.next(); c {
	case '{', '}':
	case '=', 'd', 'D', 'g', 'G', 'h', 'H', 'n', 'N', 'p', 'P', 'x', 'z', 'F':
		return s.end()
	case 'q', 'Q', 'l', 'L':
		s.skip(" \t0123456789")
		return s.end()
	case 'a', 'i', 'c':
		return s.skipText()
	case ':', 'b', 't', 'T':
		s.skip(" \t")
		for s.pos < len(s.text) && isWordByte(s.text[s.pos]) {
			s.pos++
		}
		return s.endOfLabel()
	case 'r', 'R': // these read a file, whose name is the rest of the line
		s.skip(" \t")
		start := s.pos
		s.skipLine()
		s.reads = append(s.reads, s.text[start:s.pos])
	case '#':
		s.skipLine()
	case 'v':
		s.skip(" \t.0123456789")
		return s.endOfLabel()
	case 'y':
		d := s.next()
		if strings.IndexByte("\x00\n\\", d) >= 0 || !s.skipPast(d, false) || !s.skipPast(d, false) {
			return errSedScript
		}
		return s.end()
	case 's':
		return s.substitute()
	case 'e':
		return errSedRuns
	case 'w', 'W':
		return errSedWrites
	default:
		return errSedScript
	}
	return nil
}

// skipText skips the text of a, i and c.
func (s *sedParser) skipText() error {
	for {
		start := s.pos
		s.skipLine()
		line := s.text[start:s.pos]
		switch {
		case !strings.HasSuffix(line, `\`):
			return nil
		case strings.HasSuffix(line, `\\`):
			return errSedScript // an escaped backslash, or one that continues the text
		case s.next() == 0:
			return errSedScript // the text continues in another -e
		}
	}
}

func (s *sedParser) substitute() error {
	d := s.next()
	if strings.IndexByte("\x00\n\\", d) >= 0 || !s.skipPast(d, true) || !s.skipPast(d, false) {
		return errSedScript
	}
	// The flags e and w of s run the result and write it (GNU sed manual, 3.3).
	for {
		switch c := s.peek(); {
		case strings.IndexByte("gpiIMm0123456789", c) >= 0 && c != 0:
			s.pos++
		case c == 'e':
			return errSedRuns
		case c == 'w':
			return errSedWrites
		default:
			return s.end()
		}
	}
}

// endOfLabel expects the end of a command after a label or version. Versions of sed differ on where labels with other
// characters end: "#" is part of a label in some, and the commands after it run.
func (s *sedParser) endOfLabel() error {
	if s.peek() == '#' {
		return errSedScript
	}
	return s.end()
}

// end expects the end of a command.
func (s *sedParser) end() error {
	s.skip(" \t")
	switch c := s.peek(); c {
	case 0, ';', '\n', '}':
		return nil
	case '#':
		s.skipLine()
		return nil
	}
	return errSedScript
}
