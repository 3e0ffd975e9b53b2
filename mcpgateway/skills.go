package mcpgateway

import (
	"context"
	"fmt"
	"slices"

	"github.com/kitbag-go/kitbag/skill"
)

// serverSkills loads the skills of an upstream server. The gateway serves them as its own, with the server's name
// before their paths.
type serverSkills struct{ server *upstream }

// Load implements [skill.Loader].
func (s serverSkills) Load(ctx context.Context) ([]*skill.Skill, []skill.Diagnostic, error) {
	skills, problems, err := s.server.client.Skills().Load(ctx)
	return s.withFiles(skills), problems, withoutStderr(ctx, err)
}

// Known returns the skills of the server's last list; see [toolkit.Group]. The loader of mcpclient has it too.
func (s serverSkills) Known() []*skill.Skill {
	return s.withFiles(s.server.client.Skills().(interface{ Known() []*skill.Skill }).Known())
}

// withFiles returns the skills, whose files the gateway then reads with skillFiles.
func (s serverSkills) withFiles(skills []*skill.Skill) []*skill.Skill {
	for _, sk := range skills {
		sk.Remote = skillFiles{sk.Remote, sk.Name, s.server}
	}
	return skills
}

// skillFiles are the files of a skill.
type skillFiles struct {
	skill.Remote
	name   string
	server *upstream
}

// Read implements [skill.Remote]. It uses the connection of the user if there is one, because the gateway's own may be
// allowed to do more.
func (f skillFiles) Read(ctx context.Context, name string) (_ []byte, err error) {
	defer func() { err = withoutStderr(ctx, err) }()
	if f.server.users == nil {
		return f.Remote.Read(ctx, name)
	}
	c, done, err := f.server.users.client(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if _, err := c.Tools(ctx); err != nil { // connects: before that, Load returns no skills
		return nil, err
	}
	skills, _, err := c.Skills().Load(ctx)
	if err != nil {
		return nil, err
	}
	for _, sk := range skills {
		if sk.Name == f.name && slices.Equal(sk.Remote.Manifest(), f.Manifest()) {
			return sk.Remote.Read(ctx, name)
		}
	}
	return nil, fmt.Errorf("MCP server %q does not offer the skill %q to this user, or offers another form of it", f.server.name, f.name)
}
