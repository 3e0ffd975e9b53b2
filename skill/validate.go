package skill

import (
	"cmp"
	"context"
	"io/fs"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kitbag-go/kitbag/internal/lazy"
)

// maxTokens is the longest body, in tokens, that the specification recommends.
const maxTokens = 5000

// A Report is the result of the validation of one skill.
type Report struct {
	Path        string       `json:"path"`  // the skill's folder; without one, its name; "" for a loader that failed
	Valid       bool         `json:"valid"` // no diagnostic is an error
	Loads       bool         `json:"loads"` // no diagnostic is fatal
	Diagnostics []Diagnostic `json:"diagnostics"`
}

// Validate loads the skills as [Loader.Load] does and also checks their bodies: links, mentioned files, size.
// There is a report for each skill that was found, sorted by path, also for those that do not load.
func Validate(ctx context.Context, l Loader) ([]Report, error) {
	f, err := find(ctx, l)
	if err != nil {
		return nil, err
	}
	byPath := map[string]*Report{}
	reportOf := func(file string) *Report {
		folder := folderOf(file)
		if byPath[folder] == nil {
			byPath[folder] = &Report{Path: folder, Diagnostics: []Diagnostic{}}
		}
		return byPath[folder]
	}
	f.once.Do(f.dropShadowed)
	for _, d := range slices.Concat(f.problems, f.shadowed) {
		rep := reportOf(d.File)
		rep.Diagnostics = append(rep.Diagnostics, d)
	}
	for _, s := range f.skills {
		r := newReport(s)
		checkBody(r, s)
		rep := reportOf(r.file)
		rep.Diagnostics = append(rep.Diagnostics, r.problems...)
	}
	reports := make([]Report, 0, len(byPath))
	for _, rep := range byPath {
		slices.SortStableFunc(rep.Diagnostics, func(a, b Diagnostic) int { return cmp.Compare(a.Line, b.Line) })
		rep.Valid = !slices.ContainsFunc(rep.Diagnostics, func(d Diagnostic) bool { return d.Severity == SeverityError })
		rep.Loads = !slices.ContainsFunc(rep.Diagnostics, func(d Diagnostic) bool { return d.Fatal })
		reports = append(reports, *rep)
	}
	slices.SortFunc(reports, func(a, b Report) int { return cmp.Compare(a.Path, b.Path) })
	return reports, ctx.Err()
}

// folderOf returns the folder of the skill that a diagnostic is about, whose file may be the
// SKILL.md, a folder or a link.
func folderOf(file string) string {
	if isSkillFile(filepath.Base(file)) {
		return filepath.Dir(file)
	}
	return file
}

// checkBody warns of probable mistakes in a body. None of them breaks the specification.
func checkBody(r *report, s *Skill) {
	if strings.TrimSpace(s.Body) == "" {
		r.warn("body-empty", max(s.bodyLine-1, 0), "there are no instructions below the front matter; write instructions for the model")
		return
	}
	if n := tokens(s.Body); n > maxTokens {
		r.warn("body-tokens", s.bodyLine, "the body has about %d tokens, more than the %d advised; move details to files in references/", n, maxTokens)
	}
	files, done, err := s.open()
	if err == nil {
		defer done()
	}
	doc := s.Document()
	for _, link := range doc.Links {
		checkLink(r, doc, files, link)
	}
	for _, ref := range doc.refs {
		if clean := path.Clean(ref.Target); files != nil && !exists(files, clean) {
			r.warn("file-missing", ref.Line, "file %s is not in the skill's folder", quote(clean))
		}
	}
}

// tokens estimates the tokens of a text: one for four ASCII characters, and one for each other character.
func tokens(text string) int {
	chars := utf8.RuneCountInString(text)
	other := (len(text) - chars + 1) / 2 // a character that is not ASCII has two bytes or more
	return (chars-min(other, chars))/4 + min(other, chars)
}

// Targets of links that are not files: URLs, and examples with a placeholder.
var (
	scheme      = lazy.Regexp(`^(?i)([a-z][a-z0-9+.-]*:|//)`)
	placeholder = lazy.Regexp(`[{}<>$*|]|\.\.\.`)
	// bundledPath matches a code span that names a file in scripts/, references/ or assets/.
	bundledPath = lazy.Regexp(`^(\./)?(scripts|references|assets)/[\w./-]*\w\.\w+$`)
)

// checkLink skips what it cannot check: URLs and examples. If files is nil, it checks only
// anchors and whether a link leaves the folder.
func checkLink(r *report, doc *Document, files fs.FS, link Link) {
	target := link.Target
	if target == "" || scheme().MatchString(target) || placeholder().MatchString(target) {
		return
	}
	name, anchor, _ := strings.Cut(target, "#")
	if name == "" {
		if !doc.hasAnchor(anchor) {
			r.warn("link-anchor", link.Line, "the link %s matches no section; use the anchor of a heading", quote(target))
		}
		return
	}
	name, _, _ = strings.Cut(name, "?")
	if plain, err := url.PathUnescape(name); err == nil {
		name = plain
	}
	clean := path.Clean(name)
	switch {
	case !fs.ValidPath(clean):
		r.warn("link-outside", link.Line, "the link %s leads out of the skill's folder; bundle the file, and link to it relative to the folder", quote(target))
	case files != nil && !exists(files, clean):
		r.warn("link-missing", link.Line, "the link's file %s is not in the skill's folder", quote(clean))
	}
}

func exists(files fs.FS, name string) bool {
	_, err := fs.Stat(files, name)
	return err == nil
}

// hasAnchor reports whether a heading or an HTML element has the anchor.
func (d *Document) hasAnchor(anchor string) bool {
	if plain, err := url.PathUnescape(anchor); err == nil {
		anchor = plain
	}
	return anchor == "" || slices.ContainsFunc(d.Sections, func(s Section) bool { return strings.EqualFold(s.Anchor, anchor) }) ||
		strings.Contains(d.text, `id="`+anchor+`"`) || strings.Contains(d.text, `name="`+anchor+`"`)
}
