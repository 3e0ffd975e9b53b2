package builtin

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"unicode"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/kitbag-go/kitbag/builtin/internal/gitignore"
	"github.com/kitbag-go/kitbag/builtin/internal/grep"
	"github.com/kitbag-go/kitbag/tool"
)

var (
	//go:embed text/grep.md
	grepText string

	//go:embed text/types.txt
	typesText string
)

const (
	defaultHeadLimit = 250
	maxHeadLimit     = 10_000  // results of one call
	maxOffset        = 100_000 // results that are skipped first
	maxGrepText      = 1 << 20 // bytes of one result
	maxColumns       = 500     // bytes of a line in the result
	maxContext       = 100     // lines before, and after, a match
	maxAlternatives  = 100     // words that the braces of a glob expand to
)

type grepIn struct {
	Pattern         string `json:"pattern" jsonschema_description:"regular expression to look for"`
	Path            string `json:"path,omitempty" jsonschema_description:"file or directory to search; the working directory if left out"`
	OutputMode      string `json:"output_mode,omitempty" jsonschema:"enum=files_with_matches,enum=content,enum=count,default=files_with_matches" jsonschema_description:"what to return"`
	Glob            string `json:"glob,omitempty" jsonschema_description:"names of the files to search, such as *.go"`
	Type            string `json:"type,omitempty" jsonschema_description:"type of the files to search, such as go"`
	After           int    `json:"-A,omitempty" jsonschema:"minimum=0" jsonschema_description:"lines to show after each match (content mode)"`
	Before          int    `json:"-B,omitempty" jsonschema:"minimum=0" jsonschema_description:"lines to show before each match (content mode)"`
	Around          int    `json:"-C,omitempty" jsonschema:"minimum=0" jsonschema_description:"lines to show before and after each match (content mode)"`
	Context         int    `json:"context,omitempty" jsonschema:"minimum=0" jsonschema_description:"the same as -C"`
	Numbers         *bool  `json:"n,omitempty" jsonschema:"default=true" jsonschema_description:"show line numbers (content mode)"`
	DashN           *bool  `json:"-n,omitempty" jsonschema_description:"the same as n"`
	DashI           bool   `json:"-i,omitempty" jsonschema:"default=false" jsonschema_description:"the same as case_insensitive"`
	I               bool   `json:"i,omitempty" jsonschema:"default=false" jsonschema_description:"the same as case_insensitive"`
	CaseInsensitive bool   `json:"case_insensitive,omitempty" jsonschema:"default=false" jsonschema_description:"do not tell upper case from lower case"`
	Multiline       bool   `json:"multiline,omitempty" jsonschema:"default=false" jsonschema_description:"let matches span lines, and . match line ends"`
	HeadLimit       *int   `json:"head_limit,omitempty" jsonschema:"minimum=0,default=250" jsonschema_description:"how many results to return at most; 0 for as many as possible"`
	Offset          int    `json:"offset,omitempty" jsonschema:"minimum=0,default=0" jsonschema_description:"how many results to leave out first"`
}

type grepTool struct {
	tool.Tool
	judge
}

// Grep returns the tool that searches the content of files.
func Grep(c Config) (tool.Tool, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	g := &grepTool{judge: judge{Config: c, tool: "Grep", access: searchesTree, path: func(input json.RawMessage) (string, bool) {
		in, err := unmarshal[grepIn](input)
		return c.absDir(in.Path), err == nil
	}}}
	g.Tool, err = tool.New("Grep", grepText, g.run, tool.Options{ReadOnly: true, Parallel: true})
	return g, err
}

func (g *grepTool) run(ctx context.Context, in grepIn) (string, error) {
	s, err := newGrepSearch(in)
	if err != nil {
		return "", err
	}
	root := g.absDir(in.Path)
	s.root = root
	target := g.target(ctx, root)
	f, err := g.Backend.Open(ctx, target)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("path %s: %w; the working directory, which is searched without path, is %s", root, fs.ErrNotExist, g.Dirs[0])
	} else if err != nil {
		return "", err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return "", err
	}
	limited, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	var w walk
	if info.IsDir() {
		s.prefix = strings.TrimSuffix(root, "/") + "/"
		w = walk{backend: g.Backend, real: target.Path, except: except(ctx), obeyIgnore: true,
			enter: s.enters, wants: s.wants, forced: s.forced}
		w.file = func(worker int, f walkFile) { s.file(limited, worker, f) }
		w.run(limited, root, f)
	} else {
		s.search(limited, 0, root, f)
		f.Close()
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return s.text(&w, limited.Err() != nil), nil
}

// A grepSearch is one search.
type grepSearch struct {
	in        grepIn
	root      string
	prefix    string           // of the paths below the root
	globs     *gitignore.Rules // of the argument glob
	onlyGlobs bool             // search only files that globs matches
	types     *gitignore.Rules // of the argument type
	matcher   *grep.Matcher
	searchers []*grep.Searcher // by worker
	hits      hits
	notes     []string // on the arguments
}

// noteLimit adds a note if an argument is above its limit.
func (s *grepSearch) noteLimit(name string, n, limit int) {
	if n > limit {
		s.notes = append(s.notes, fmt.Sprintf("[%s %d is too large; %d was used]\n", name, n, limit))
	}
}

func newGrepSearch(in grepIn) (*grepSearch, error) {
	s := &grepSearch{in: in}
	o := grep.Options{IgnoreCase: in.I || in.DashI || in.CaseInsensitive, Multiline: in.Multiline}
	if in.OutputMode == "content" {
		o.Before, o.After = in.Before, in.After
		if around := max(in.Around, in.Context); around > 0 {
			o.Before, o.After = around, around
		}
		o.Before, o.After = min(o.Before, maxContext), min(o.After, maxContext)
	}
	isFalse := func(arg *bool) bool { return arg != nil && !*arg }
	o.NoNumbers = in.OutputMode != "content" || isFalse(in.Numbers) || isFalse(in.DashN)
	var err error
	if s.matcher, err = grep.Compile(in.Pattern, o); err != nil {
		return nil, err
	}
	for range workers() {
		s.searchers = append(s.searchers, s.matcher.NewSearcher())
	}
	if in.Type != "" {
		patterns := fileType(in.Type)
		if patterns == nil {
			return nil, fmt.Errorf("there is no file type %q; name the files with glob, such as *.%[1]s", in.Type)
		}
		s.types = gitignore.Parse([]byte(strings.Join(patterns, "\n")))
	}
	if tokens := globTokens(in.Glob); len(tokens) > 0 {
		for _, token := range tokens {
			if !doublestar.ValidatePattern(token) {
				return nil, badGlob("glob", in.Glob)
			}
		}
		s.onlyGlobs = slices.ContainsFunc(tokens, func(t string) bool { return t[0] != '!' })
		s.globs = gitignore.Parse([]byte(strings.Join(tokens, "\n")))
	}
	limit := defaultHeadLimit
	if in.HeadLimit != nil {
		limit = *in.HeadLimit
	}
	s.noteLimit("head_limit", limit, maxHeadLimit)
	s.noteLimit("offset", in.Offset, maxOffset)
	for name, n := range map[string]int{"-A": in.After, "-B": in.Before, "-C": in.Around, "context": in.Context} {
		s.noteLimit(name, n, maxContext)
	}
	slices.Sort(s.notes)
	if limit <= 0 || limit > maxHeadLimit {
		limit = maxHeadLimit
	}
	s.hits = hits{limit: limit, offset: min(max(in.Offset, 0), maxOffset), separate: o.Before+o.After > 0}
	return s, nil
}

// fileType returns the patterns of a type, or nil.
func fileType(name string) []string {
	for line := range strings.Lines(typesText) {
		if f := strings.Fields(line); f[0] == name && name != "#" { // a comment begins with #
			return f[1:]
		}
	}
	return nil
}

// globTokens splits the glob argument at blanks, and at commas that are not in braces. Braces are expanded.
func globTokens(s string) []string {
	var all []string
	depth := 0
	for _, part := range strings.FieldsFunc(s, func(r rune) bool {
		switch r {
		case '{':
			depth++
		case '}':
			depth--
		}
		return unicode.IsSpace(r) || r == ',' && depth <= 0
	}) {
		for _, t := range expandBraces(part, maxAlternatives) {
			switch {
			case t == "" || t == "!":
			case t[0] == '#': // escaped, because the unescaped # begins a comment
				all = append(all, `\`+t)
			default:
				all = append(all, t)
			}
		}
	}
	return all
}

// expandBraces returns the words that s, such as "a{b,c}", expands to, at most max.
func expandBraces(s string, max int) []string {
	open := strings.IndexByte(s, '{')
	if open < 0 {
		return []string{s}
	}
	depth, start := 0, open+1
	var parts []string
	for i := open; i < len(s); i++ {
		switch s[i] {
		case '{':
			depth++
		case ',', '}':
			if depth == 1 {
				parts = append(parts, s[start:i])
				start = i + 1
			}
			if s[i] == '}' {
				depth--
			}
			if depth > 0 {
				continue
			}
			var all []string
			for _, p := range parts {
				all = append(all, expandBraces(s[:open]+p+s[i+1:], max)...)
				if len(all) >= max { // stop here, as each further word multiplies the work
					return all[:max]
				}
			}
			return all
		}
	}
	return []string{s} // no closing brace
}

// vcsDirs are directories of version control systems, which are not searched.
var vcsDirs = []string{".git", ".svn", ".hg", ".bzr", ".jj", ".sl"}

// enters reports whether to search below a directory.
func (s *grepSearch) enters(full, name string) bool {
	if slices.Contains(vcsDirs, name) || s.hits.notNeeded(full) {
		return false
	}
	named, decided := s.globs.Match(full[len(s.prefix):], true)
	return named || !decided
}

// forced reports whether the model named the file, which overrides ignore files.
func (s *grepSearch) forced(full string) bool {
	named, _ := s.globs.Match(full[len(s.prefix):], false)
	return named
}

// wants reports whether the model requested files of this name.
func (s *grepSearch) wants(full string) bool {
	rel := full[len(s.prefix):]
	if named, decided := s.globs.Match(rel, false); decided && !named || !decided && s.onlyGlobs {
		return false
	}
	if s.types == nil {
		return true
	}
	typed, _ := s.types.Match(rel, false)
	return typed
}

// file searches one file of the walk.
func (s *grepSearch) file(ctx context.Context, worker int, f walkFile) {
	if s.hits.notNeeded(f.path) {
		return
	}
	file, err := f.dir.open(ctx, f.entry.Name())
	if err != nil {
		return // removed, or not readable
	}
	s.search(ctx, worker, f.path, file)
	file.Close()
}

// search searches an open file.
func (s *grepSearch) search(ctx context.Context, worker int, path string, r io.Reader) {
	var lines []string
	matches := 0
	wanted := s.hits.wanted()
	// An error ends the search, but the lines before it count.
	s.searchers[worker].Search(ctx, r, func(l grep.Line) bool {
		if ctx.Err() != nil {
			return false
		}
		if l.Match {
			matches++
		}
		switch s.in.OutputMode {
		case "content":
			if l.Gap && s.hits.separate {
				lines = append(lines, separator)
			}
			lines = append(lines, s.show(path, l))
			return len(lines) < wanted
		case "count":
			return true
		}
		return false
	})
	if matches == 0 {
		return
	}
	switch s.in.OutputMode {
	case "content":
	case "count":
		lines = []string{fmt.Sprintf("%s:%d", path, matches)}
	default:
		lines = []string{path}
	}
	s.hits.add(path, lines)
}

// show formats a line as grep does.
func (s *grepSearch) show(path string, l grep.Line) string {
	sep, text := "-", "[Omitted long context line]"
	if l.Match {
		sep, text = ":", "[Omitted long matching line]"
	}
	if len(l.Text) <= maxColumns {
		text = strings.ToValidUTF8(string(l.Text), "\uFFFD")
	}
	if l.Number == 0 {
		return path + sep + text
	}
	return fmt.Sprintf("%s%s%d%s%s", path, sep, l.Number, sep, text)
}
