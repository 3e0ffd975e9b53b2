package permission

import "fmt"

const modeNames = "the modes are default, accept-edits, sandboxed, explore, bypass, dont-ask"

func (m Mode) known() bool {
	switch m {
	case ModeDefault, ModeAcceptEdits, ModeSandboxed, ModeExplore, ModeBypass, ModeDontAsk:
		return true
	}
	return false
}

// spellings maps the mode names of other programs' settings.
var spellings = map[string]Mode{
	"acceptEdits": ModeAcceptEdits, "accept_edits": ModeAcceptEdits,
	"plan": ModeExplore, "bypassPermissions": ModeBypass,
	"dontAsk": ModeDontAsk, "dont_ask": ModeDontAsk,
}

// ParseMode parses a mode, including the spellings of other programs, such as acceptEdits, bypassPermissions and
// plan. The empty text is ModeDefault.
func ParseMode(text string) (Mode, error) {
	switch m := Mode(text); {
	case text == "":
		return ModeDefault, nil
	case m.known():
		return m, nil
	}
	if m, ok := spellings[text]; ok {
		return m, nil
	}
	return "", fmt.Errorf("unknown mode %q; %s", text, modeNames)
}
