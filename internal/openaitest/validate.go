package openaitest
func Validate(body []byte, allow ...string) error { return nil }
