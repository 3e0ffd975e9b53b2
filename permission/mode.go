package permission

import "fmt"

const modeNames = "the modes are default, accept-edits, sandboxed, explore, bypass, dont-ask"

func (m Mode) known() bool {
	switch m {
	case Default, AcceptEdits, Sandboxed, Explore, Bypass, DontAsk:
		return true
	}
	return false
}

// spellings maps the names that other programs' settings use.
var spellings = map[string]Mode{
	"acceptEdits": AcceptEdits, "accept_edits": AcceptEdits,
	"plan": Explore, "bypassPermissions": Bypass,
	"dontAsk": DontAsk, "dont_ask": DontAsk,
}

// ParseMode reads a mode, also in the spellings of other programs, such as
// acceptEdits, bypassPermissions and plan. The empty text is Default.
func ParseMode(text string) (Mode, error) {
	switch m := Mode(text); {
	case text == "":
		return Default, nil
	case m.known():
		return m, nil
	}
	if m, ok := spellings[text]; ok {
		return m, nil
	}
	return "", fmt.Errorf("mode %q is not known; %s", text, modeNames)
}
