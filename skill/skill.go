package skill

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
)

// A Skill is one skill, read from its SKILL.md. The fields before Body are those of its front matter.
//
// A Skill that a [Loader] returns is shared: treat it as read-only. Its methods are safe for concurrent use. A
// Skill may also be written as a literal, with Name, Description and Body, for [Memory].
type Skill struct {
	Name          string
	Description   string
	License       string
	Compatibility string
	Metadata      map[string]string

	// AllowedTools are the rules of allowed-tools, in order and as written, such as "Read" or "Bash(git add:*)".
	// They are a request of the skill's author: show them to the user, but grant nothing.
	AllowedTools []string

	// Body is the markdown after the front matter, with line ends as "\n".
	Body string

	// Dir is the skill's folder on this machine, for users and for tools that run its
	// scripts. It is "" for a skill that is not on disk.
	Dir string

	// Path names the SKILL.md in diagnostics: a file of the machine, or a name
	// in an fs.FS. It is "" for a skill of [Memory].
	Path string

	// Bytes is the size of the SKILL.md.
	Bytes int

	// Origin and Remote are set for a skill that is not on this machine. Its Body is empty: [View] fetches it.
	// Origin is where the skill comes from, such as `MCP server "docs"`; users and models are shown it.
	Origin string
	Remote Remote

	bodyLine int      // the line of Path on which Body begins
	at       fileTree // where its files are; the zero fileTree has no files
	folder   string   // the skill's folder in at

	once   sync.Once
	doc    *Document
	hashes sync.Map // cachedEntry, by name
}

// Document is the parsed body. It is parsed by the first call.
func (s *Skill) Document() *Document {
	s.once.Do(func() { s.doc = parseDocument(s.Body, max(s.bodyLine, 1)) })
	return s.doc
}

// The severities of a [Diagnostic]: an error breaks the specification, a warning is allowed but probably a mistake.
const (
	SeverityError   = "error"
	SeverityWarning = "warning"
)

// A Diagnostic is a problem of a skill.
//
// Fatal errors; the skill is not loaded:
//
//	skill-file            the folder has no SKILL.md (only [One] requires one)
//	unreadable            the file or folder cannot be read
//	symlink               a link leads out of the loaded folder, or its target is missing
//	too-large             over 1 MiB, or over 64 KiB of front matter
//	encoding              UTF-16
//	frontmatter-missing   the file does not begin with ---
//	frontmatter-unclosed  the closing --- is missing
//	frontmatter-fields    the front matter is not a mapping
//	yaml                  the front matter is not YAML, or its aliases expand too far
//	description-missing
//	name-missing          and no folder whose name could be used
//	loader                one of several merged loaders failed
//
// Errors that do not prevent loading:
//
//	name-missing          the folder's name is used
//	name-length           more than 64 characters
//	name-characters       other than lowercase letters, digits and hyphens
//	name-hyphens          at an end, or two in a row
//	name-folder           differs from the folder's name
//	description-length    more than 1024 characters
//	compatibility-length  empty or more than 500 characters
//	metadata-type         not a mapping of text to text
//	allowed-tools         neither text nor a list, or a parenthesis is not closed
//	field-type            a list or a mapping where text is required
//	duplicate-field       the first one is used; also inside of a field
//	yaml-quoted           a value that needs quotes to be YAML and has none
//	frontmatter-position  blank lines before the front matter
//	encoding              bytes that are not UTF-8
//	skill-file            another spelling of SKILL.md
//
// Warnings: field-type and metadata-type (a number or the like was read as text), unknown-field, name-ascii,
// skill-file (the file is called skill.md), description-when (it does not say when to use the skill), shadowed (an
// earlier skill has the same name), body-empty, body-tokens (more than 5,000), link-missing, link-outside,
// link-anchor, file-missing (a mentioned file).
type Diagnostic struct {
	File     string `json:"file"` // as in [Skill.Path]; without one, the skill's name; "" for a loader
	Line     int    `json:"line"` // from 1; 0 if it concerns the whole file
	Rule     string `json:"rule"`
	Severity string `json:"severity"` // [SeverityError] or [SeverityWarning]
	Message  string `json:"message"`  // what is wrong, and what to write instead

	// Fatal means that the skill was not loaded.
	Fatal bool `json:"-"`
}

// String formats the diagnostic as editors and terminals expect: FILE:LINE: ….
func (d Diagnostic) String() string {
	at := d.File
	if d.Line > 0 {
		at += fmt.Sprintf(":%d", d.Line)
	}
	if at != "" {
		at += ": "
	}
	return fmt.Sprintf("%s%s: %s (%s)", at, d.Severity, d.Message, d.Rule)
}

// newReport returns a report about a loaded skill.
func newReport(s *Skill) *report { return &report{file: cmp.Or(s.Path, "skill "+quote(s.Name))} }

// A report collects the diagnostics of one file.
type report struct {
	file     string
	problems []Diagnostic
}

// maxDiagnostics bounds the diagnostics of a file. Fatal ones, and the first error, are added even beyond.
const maxDiagnostics = 100

func (r *report) add(d Diagnostic, format string, args []any) {
	isError := func(d Diagnostic) bool { return d.Severity == SeverityError }
	if len(r.problems) >= maxDiagnostics && !d.Fatal && (!isError(d) || slices.ContainsFunc(r.problems, isError)) {
		return
	}
	d.File, d.Message = r.file, fmt.Sprintf(format, args...)
	r.problems = append(r.problems, d)
}

// warn reports what is allowed but probably a mistake.
func (r *report) warn(rule string, line int, format string, args ...any) {
	r.add(Diagnostic{Rule: rule, Line: line, Severity: SeverityWarning}, format, args)
}

// nonfatal reports a violation of the specification that does not prevent loading.
func (r *report) nonfatal(rule string, line int, format string, args ...any) {
	r.add(Diagnostic{Rule: rule, Line: line, Severity: SeverityError}, format, args)
}

// fatal reports what prevents loading.
func (r *report) fatal(rule string, line int, format string, args ...any) {
	r.add(Diagnostic{Rule: rule, Line: line, Severity: SeverityError, Fatal: true}, format, args)
}

func (r *report) failed() bool {
	return slices.ContainsFunc(r.problems, func(d Diagnostic) bool { return d.Fatal })
}
