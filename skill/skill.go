// Package skill loads Agent Skills: folders with a SKILL.md.
package skill

import "context"

// A Skill is one skill, read from its SKILL.md.
type Skill struct {
	Name          string
	Description   string
	License       string
	Compatibility string
	Metadata      map[string]string
	AllowedTools  []string

	Dir string // where the skill's folder is, for people and for tools that run its scripts; "" if it is nowhere
}

// A Loader finds skills. Load may be called at every step: it must be cheap
// when nothing has changed. It returns the skills in a fixed order.
type Loader interface {
	Load(ctx context.Context) ([]*Skill, []Diagnostic, error)
}

// A Diagnostic is something wrong with a skill.
type Diagnostic struct {
	File     string
	Line     int
	Rule     string
	Severity string
	Message  string
}
