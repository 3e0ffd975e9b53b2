package toolkit

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/tool"
)

const skillTool = "Skill"

func newSkillViewer(tk *Toolkit, s *Scope) tool.Tool {
	return &controlTool{
		info: tool.Info{Name: skillTool, Description: "Reads a skill.", Control: true, ReadOnly: true,
			Input: schema([]string{"skill"}, prop("skill", `"type":"string"`, "The name of the skill."))},
		run: func(ctx context.Context, input json.RawMessage) (answer, error) {
			return answer{}, fmt.Errorf("not yet")
		},
	}
}

func skillPrompt(skills []*skill.Skill) string {
	var b strings.Builder
	for _, s := range skills {
		fmt.Fprintf(&b, "- %s: %s\n", s.Name, s.Description)
	}
	return b.String()
}
