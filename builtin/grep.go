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
	maxLineBytes     = 500     // bytes of a line in the result; a longer line is not shown
	maxContext       = 100     // lines before, and after, a match
	maxAlternatives  = 100     // words that the braces of one pattern in glob expand to
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
	judge // implements [tool.Judge]
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
	root := g.absDir(in.Path)
	s, err := newGrepSearch(in, root)
	if err != nil {
		return "", err
	}
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
	searchCtx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	var w walk
	if info.IsDir() {
		w = walk{backend: g.Backend, real: target.Path, except: except(ctx), obeyIgnore: true,
			enter: s.enters, wants: s.wants, forced: s.forced}
		w.file = func(worker int, f walkFile) { s.searchWalked(searchCtx, worker, f) }
		w.run(searchCtx, root, f)
	} else {
		s.search(searchCtx, 0, root, f)
		f.Close()
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return s.text(&w, searchCtx.Err() != nil), nil
}

// A grepSearch is one search. It selects files by rules in the syntax of .gitignore: what the rules would ignore is
// what the model named, and "!" excludes.
type grepSearch struct {
	in        grepIn
	root      string           // the file or directory to search
	prefix    string           // of the paths below root
	globs     *gitignore.Rules // the argument glob
	onlyNamed bool             // search only files that globs names; false if globs only excludes files
	types     *gitignore.Rules // the argument type; nil for all types
	searchers []*grep.Searcher // by worker
	hits      hits
	notes     []string // for the model, about its arguments
}

// noteLimit adds a note if an argument is above its limit.
func (s *grepSearch) noteLimit(name string, n, limit int) {
	if n > limit {
		s.notes = append(s.notes, fmt.Sprintf("[%s %d is too large; %d was used]\n", name, n, limit))
	}
}

func newGrepSearch(in grepIn, root string) (*grepSearch, error) {
	s := &grepSearch{in: in, root: root, prefix: strings.TrimSuffix(root, "/") + "/"}
	opts := grep.Options{IgnoreCase: in.I || in.DashI || in.CaseInsensitive, Multiline: in.Multiline}
	if in.OutputMode == "content" {
		opts.Before, opts.After = in.Before, in.After
		if around := max(in.Around, in.Context); around > 0 {
			opts.Before, opts.After = around, around
		}
		opts.Before, opts.After = min(opts.Before, maxContext), min(opts.After, maxContext)
	}
	isFalse := func(arg *bool) bool { return arg != nil && !*arg }
	opts.NoNumbers = in.OutputMode != "content" || isFalse(in.Numbers) || isFalse(in.DashN)
	matcher, err := grep.Compile(in.Pattern, opts)
	if err != nil {
		return nil, err
	}
	for range workers() {
		s.searchers = append(s.searchers, matcher.NewSearcher())
	}
	if in.Type != "" {
		patterns := typePatterns(in.Type)
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
		s.onlyNamed = slices.ContainsFunc(tokens, func(t string) bool { return t[0] != '!' })
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
	if limit <= 0 || limit > maxHeadLimit { // 0 means as many as possible
		limit = maxHeadLimit
	}
	s.hits = hits{limit: limit, offset: min(max(in.Offset, 0), maxOffset), separate: opts.Before+opts.After > 0}
	return s, nil
}

// typePatterns returns the patterns of a file type, or nil if there is no such type.
func typePatterns(name string) []string {
	for line := range strings.Lines(typesText) {
		if f := strings.Fields(line); f[0] == name && name != "#" { // # begins a comment in typesText
			return f[1:]
		}
	}
	return nil
}

// globTokens splits the glob argument at blanks, and at commas that are not in braces. Braces are expanded.
func globTokens(glob string) []string {
	var all []string
	depth := 0 // of braces
	for _, part := range strings.FieldsFunc(glob, func(r rune) bool {
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
			case t[0] == '#': // an unescaped # would begin a comment
				all = append(all, `\`+t)
			default:
				all = append(all, t)
			}
		}
	}
	return all
}

// expandBraces returns the words that s, such as "a{b,c}", expands to, but at most limit. A brace that is not closed
// stands for itself.
func expandBraces(s string, limit int) []string {
	before, inBraces, _ := strings.Cut(s, "{")
	parts, after := splitBraces(inBraces)
	if parts == nil {
		return []string{s}
	}
	var all []string
	for _, part := range parts {
		all = append(all, expandBraces(before+part+after, limit)...)
		if len(all) >= limit { // stop here, since each further word multiplies the work
			return all[:limit]
		}
	}
	return all
}

// splitBraces splits s, the text after a "{", at the commas before the matching "}", and returns the text after it.
// parts is nil without a matching "}".
func splitBraces(s string) (parts []string, after string) {
	depth, start := 0, 0
	for i := range len(s) {
		switch {
		case s[i] == '{':
			depth++
		case s[i] == '}' && depth > 0:
			depth--
		case s[i] == '}':
			return append(parts, s[start:i]), s[i+1:]
		case s[i] == ',' && depth == 0:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return nil, ""
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

// wants reports whether the arguments glob and type select the file.
func (s *grepSearch) wants(full string) bool {
	rel := full[len(s.prefix):]
	if named, decided := s.globs.Match(rel, false); !named && (decided || s.onlyNamed) {
		return false
	}
	ofType, _ := s.types.Match(rel, false)
	return s.types == nil || ofType
}

// searchWalked searches a file that the walk has found.
func (s *grepSearch) searchWalked(ctx context.Context, worker int, f walkFile) {
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
	// The lines before an error count, so the error is ignored.
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
			lines = append(lines, formatLine(path, l))
			return len(lines) < wanted
		case "count":
			return true
		}
		return false // one match is enough for files_with_matches
	})
	if matches == 0 {
		return
	}
	switch s.in.OutputMode {
	case "content": // has lines
	case "count":
		lines = []string{fmt.Sprintf("%s:%d", path, matches)}
	default:
		lines = []string{path}
	}
	s.hits.add(path, lines)
}

// formatLine formats a line as grep does.
func formatLine(path string, l grep.Line) string {
	sep, text := "-", "[Omitted long context line]"
	if l.Match {
		sep, text = ":", "[Omitted long matching line]"
	}
	if len(l.Text) <= maxLineBytes {
		text = strings.ToValidUTF8(string(l.Text), "\uFFFD")
	}
	if l.Number == 0 {
		return path + sep + text
	}
	return fmt.Sprintf("%s%s%d%s%s", path, sep, l.Number, sep, text)
}
