package permission

// Checks is a Checker of functions. A nil function acts like the method of BaseChecker.
type Checks struct {
	OnCheck   func(*Policy) Verdict
	OnMatch   func(*Policy, Rule) (bool, error)
	OnSuggest func(*Policy) []Rule
	OnParts   func(*Policy) []Part
}

func (c Checks) Check(p *Policy) Verdict {
	if c.OnCheck == nil {
		return BaseChecker{}.Check(p)
	}
	return c.OnCheck(p)
}

func (c Checks) Match(p *Policy, r Rule) (bool, error) {
	if c.OnMatch == nil {
		return BaseChecker{}.Match(p, r)
	}
	return c.OnMatch(p, r)
}

func (c Checks) Suggest(p *Policy) []Rule {
	if c.OnSuggest == nil {
		return BaseChecker{}.Suggest(p)
	}
	return c.OnSuggest(p)
}

func (c Checks) Parts(p *Policy) []Part {
	if c.OnParts == nil {
		return BaseChecker{}.Parts(p)
	}
	return c.OnParts(p)
}

// Says is a Checker with one verdict.
func Says(v Verdict) Checker { return Checks{OnCheck: func(*Policy) Verdict { return v }} }
