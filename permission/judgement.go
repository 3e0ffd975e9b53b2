package permission

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/json"
	"slices"
)

// A Judgement is what a decision was based on: the exact text that will run, the files that the call uses, and its
// sandbox profile. What was judged is what runs: the program that runs the call passes the Judgement to the tool, which
// uses the Judgement instead of the arguments.
//
// [Decide] seals a Judgement for its one call; [Judgement.Covers] checks the seal. The seal is not part of the JSON: a
// Judgement from a file can only be compared, with [Judgement.Same], and allows no call to run.
type Judgement struct {
	Text    string  `json:"text,omitempty"`    // what runs; "" if the arguments themselves run
	Profile Profile `json:"profile,omitempty"` // the sandbox profile of the call
	Network bool    `json:"network,omitempty"` // the call may connect to other machines

	// Files are the files that the call opens, in the order the tool names them, or the directory in which Text runs.
	Files []File `json:"files,omitempty"`

	// Except are patterns of absolute paths, with links resolved: "*", "?", "[…]", "{…}" and "**" are as in file
	// rules. A search omits files that a deny or ask rule covers; a confined call cannot read files that a deny rule
	// covers.
	Except []string `json:"except,omitempty"`

	// Keep are patterns like Except. A confined call cannot change these files, because a deny rule covers them.
	Keep []string `json:"keep,omitempty"`

	seal [sha256.Size]byte
}

// A Profile names what a call may access. The zero Profile means that the tool has no sandbox, or confines itself.
type Profile string

// The profiles. A call with ProfileOpen asked to leave the sandbox.
const (
	ProfileRead Profile = "read" // writes nothing; connects only if the tool set Network
	ProfileWork Profile = "work" // writes in the working directories
	ProfileOpen Profile = "open" // not confined
)

// A File is a file as it was when a call was judged. If Device and Inode are 0, only its path is known.
type File struct {
	Path   string `json:"path"` // absolute, symbolic links resolved
	Device uint64 `json:"device,omitempty"`
	Inode  uint64 `json:"inode,omitempty"`

	// New says that the file did not exist, or could not be reached. Device and Inode then identify the lowest directory
	// above it that existed.
	New bool `json:"new,omitempty"`
}

// Covers reports whether j is the Judgement of a decision about exactly this call, unchanged.
func (j *Judgement) Covers(tool string, input []byte) bool {
	if j == nil {
		return false
	}
	want := j.digest(tool, input)
	return subtle.ConstantTimeCompare(want[:], j.seal[:]) == 1
}

// Same reports whether a user who allowed j has also allowed other. Files are compared by path only: a file that was
// replaced in the meantime, as editors do, needs no new approval.
func (j *Judgement) Same(other *Judgement) bool {
	return j.Text == other.Text && j.Profile == other.Profile && j.Network == other.Network &&
		slices.Equal(j.Except, other.Except) && slices.Equal(j.Keep, other.Keep) &&
		slices.EqualFunc(j.Files, other.Files, func(a, b File) bool { return a.Path == b.Path })
}

// Differs returns Text unless an argument is exactly Text: a user who reads the arguments must also see what runs.
func (j *Judgement) Differs(input json.RawMessage) string {
	if j == nil {
		return ""
	}
	var members map[string]any
	if json.Unmarshal(input, &members) == nil {
		for _, m := range members {
			if m == any(j.Text) {
				return ""
			}
		}
	}
	return j.Text
}

// IsZero reports whether j adds nothing to the call itself.
func (j *Judgement) IsZero() bool {
	return j.Text == "" && j.Profile == "" && !j.Network && len(j.Files) == 0 && len(j.Except) == 0 && len(j.Keep) == 0
}

// digest returns the hash of j and the call. Each text is preceded by its length, so that different calls have different
// encodings.
func (j *Judgement) digest(tool string, input []byte) [sha256.Size]byte {
	var buf [256]byte // enough for most calls
	b := appendText(buf[:0], tool)
	b = binary.AppendUvarint(b, uint64(len(input)))
	b = append(b, input...)
	b = appendText(b, j.Text)
	b = appendText(b, string(j.Profile))
	b = appendFlag(b, j.Network)
	b = binary.AppendUvarint(b, uint64(len(j.Files)))
	for _, f := range j.Files {
		b = appendText(b, f.Path)
		b = binary.AppendUvarint(b, f.Device)
		b = binary.AppendUvarint(b, f.Inode)
		b = appendFlag(b, f.New)
	}
	for _, list := range [2][]string{j.Except, j.Keep} {
		b = binary.AppendUvarint(b, uint64(len(list)))
		for _, e := range list {
			b = appendText(b, e)
		}
	}
	return sha256.Sum256(b)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendFlag(b []byte, flag bool) []byte {
	if flag {
		return append(b, 1)
	}
	return append(b, 0)
}

// Judge returns the Judgement that [Decide] would return, whatever its decision: for a host that allows a call on
// its own authority.
func Judge(p *Policy, c *Call) Judgement {
	j := c.check(p).Found
	j.complete(p, c, true)
	return j
}

// complete decides Network, which until now says what the tool knows, and seals j. granted says that a user, or a rule
// for this call, allows it.
func (j *Judgement) complete(p *Policy, c *Call, granted bool) {
	switch rule := networkRule(p); {
	case rule == Deny:
		j.Network = false
	case j.Profile == ProfileWork:
		j.Network = rule == Allow || j.Network && granted
	}
	j.seal = j.digest(c.Tool, c.Input)
}

// networkTool is the Tool of a rule about the network of confined calls.
const networkTool = "Network"

// networkRule returns the effect of the network rules: Deny, Allow or BehaviorNone. A deny rule wins. Patterns are
// invalid: a deny rule with a pattern denies everything, and such an allow rule has no effect.
func networkRule(p *Policy) Behavior {
	effect := BehaviorNone
	if p == nil { // an agent's JudgeFunc may be called without a policy
		return effect
	}
	for i := range p.Rules {
		switch r := &p.Rules[i]; {
		case r.Tool != networkTool:
		case r.effect() == Deny:
			return Deny
		case r.effect() == Allow && r.Pattern == "":
			effect = Allow
		}
	}
	return effect
}

// Stricter returns the stricter of two decisions about the same call, a if both are equally strict. A safety ask is
// stricter than another ask, since no allow rule overrides it. The Judgement of the result allows only what both
// Judgements allow.
func Stricter(c *Call, a, b Decision) Decision {
	if b.rank() > a.rank() {
		a, b = b, a
	}
	if a.Behavior == Deny {
		return a
	}
	a.Confined = a.Confined && b.Confined
	a.Judgement.Except = union(a.Judgement.Except, b.Judgement.Except)
	a.Judgement.Keep = union(a.Judgement.Keep, b.Judgement.Keep)
	a.Judgement.Profile = narrower(a.Judgement.Profile, b.Judgement.Profile)
	a.Judgement.Network = a.Judgement.Network && b.Judgement.Network
	a.Judgement.seal = a.Judgement.digest(c.Tool, c.Input)
	return a
}

// union returns a followed by the elements of b that are not in a. It changes neither slice.
func union(a, b []string) []string {
	for _, e := range b {
		if !slices.Contains(a, e) {
			a = append(slices.Clip(a), e)
		}
	}
	return a
}

// narrower returns the profile that allows less. Two profiles that do not confine the call are equal, since they depend
// on its tool and not on the decision.
func narrower(a, b Profile) Profile {
	for _, p := range []Profile{ProfileRead, ProfileWork} {
		if a == p || b == p {
			return p
		}
	}
	return a
}

// rank orders decisions by strictness.
func (d *Decision) rank() int {
	switch {
	case d.Behavior == Allow:
		return 0
	case d.Behavior == Ask && !d.Safety:
		return 1
	case d.Behavior == Ask:
		return 2
	default:
		return 3
	}
}
