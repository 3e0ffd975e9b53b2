package skill

import (
	"fmt"
	"slices"
	"sync"
)

// A Skill is one skill, read from its SKILL.md. The fields before Body are
// those of its front matter.
//
// A Skill that a [Loader] returns is shared: treat it as read-only. Its methods
// are safe for concurrent use. A Skill may also be written as a literal, with
// Name, Description and Body, for [Memory].
type Skill struct {
	Name          string
	Description   string
	License       string
	Compatibility string
	Metadata      map[string]string

	// AllowedTools are the rules of allowed-tools, in their order and as they
	// are written, such as "Read" or "Bash(git add:*)". They are a wish of
	// whoever wrote the skill: suggest them to a person, grant nothing.
	AllowedTools []string

	// Body is the markdown after the front matter, with line ends as "\n".
	Body string

	// Dir is the skill's folder on this machine, for people and for tools that
	// run its scripts. It is "" for a skill that is in no such folder.
	Dir string

	// Path names the SKILL.md in diagnostics: a file of the machine, or a name
	// in an fs.FS. It is "" for a skill of [Memory].
	Path string

	// Bytes is the size of the SKILL.md.
	Bytes int

	bodyLine int    // the line of Path on which Body begins
	at       place  // where its files are; the zero place has none
	folder   string // the skill's folder in at

	once sync.Once
	doc  *Document
}

// Document is the parsed body. It is parsed on the first call and kept.
func (s *Skill) Document() *Document {
	s.once.Do(func() { s.doc = parseDocument(s.Body, max(s.bodyLine, 1)) })
	return s.doc
}

// What a [Diagnostic] may be: an error is a breach of the specification, a
// warning is legal and likely to be a mistake.
const (
	SeverityError   = "error"
	SeverityWarning = "warning"
)

// A Diagnostic is something wrong with a skill. The rules are listed in the
// package documentation.
type Diagnostic struct {
	File     string `json:"file"` // as in [Skill.Path]
	Line     int    `json:"line"` // from 1; 0 when it is about the file as a whole
	Rule     string `json:"rule"`
	Severity string `json:"severity"` // [SeverityError] or [SeverityWarning]
	Message  string `json:"message"`  // what is wrong, and what to write instead

	// Fatal says that the skill could not be loaded at all.
	Fatal bool `json:"-"`
}

// String is the form that editors and terminals can follow: FILE:LINE: ….
func (d Diagnostic) String() string {
	at := d.File
	if d.Line > 0 {
		at = fmt.Sprintf("%s:%d", d.File, d.Line)
	}
	return fmt.Sprintf("%s: %s: %s (%s)", at, d.Severity, d.Message, d.Rule)
}

// A report collects what is wrong with one file.
type report struct {
	file string
	list []Diagnostic
}

// maxDiagnostics bounds what is told of one file. What makes it invalid, or not
// load, is told beyond.
const maxDiagnostics = 100

func (r *report) add(d Diagnostic, format string, args []any) {
	isError := func(d Diagnostic) bool { return d.Severity == SeverityError }
	if len(r.list) >= maxDiagnostics && !d.Fatal && (!isError(d) || slices.ContainsFunc(r.list, isError)) {
		return
	}
	d.File, d.Message = r.file, fmt.Sprintf(format, args...)
	r.list = append(r.list, d)
}

// warn reports what is legal and likely to be a mistake.
func (r *report) warn(rule string, line int, format string, args ...any) {
	r.add(Diagnostic{Rule: rule, Line: line, Severity: SeverityWarning}, format, args)
}

// fault reports a breach of the specification that a lenient reader can live with.
func (r *report) fault(rule string, line int, format string, args ...any) {
	r.add(Diagnostic{Rule: rule, Line: line, Severity: SeverityError}, format, args)
}

// fatal reports what leaves no skill to load.
func (r *report) fatal(rule string, line int, format string, args ...any) {
	r.add(Diagnostic{Rule: rule, Line: line, Severity: SeverityError, Fatal: true}, format, args)
}

// failed says whether the file holds no skill that can be used.
func (r *report) failed() bool {
	return slices.ContainsFunc(r.list, func(d Diagnostic) bool { return d.Fatal })
}
