package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/anthropic"
	"github.com/kitbag-go/kitbag/model/catalog"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/model/openai"
)

// apiAnthropic is the API of package anthropic. The others are those of package openai.
const apiAnthropic = "anthropic"

var apis = []string{string(openai.APIChat), string(openai.APIResponses), apiAnthropic}

// modelSettings select the model. They are flags, and members of configurations.
type modelSettings struct {
	model     string   // "" for $KITBAG_MODEL
	api       string   // one of apis; "" for $KITBAG_API, or else for what suits the name of each model
	endpoint  endpoint // of the models of one vendor
	fallback  []string // models that are called if the ones before fail
	effort    string   // of the reasoning; "" leaves it to the model
	thinking  string   // of Claude models, see thinking; "" leaves it to the model
	cache     string   // of Claude models; "" for five minutes
	lateTools *bool    // whether the endpoint takes tools at the end of a conversation; nil if that is not known
}

// An endpoint is a server of a vendor's API. The key of one vendor must not be sent to the server of another.
type endpoint struct {
	url    string // "" for that of the environment
	vendor *vendor
}

// A vendor has the variables that select the server of its API.
type vendor struct{ key, url string }

var (
	vendorOpenAI    = &vendor{"OPENAI_API_KEY", "OPENAI_BASE_URL"}
	vendorAnthropic = &vendor{"ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"}
)

// vendorOf returns the vendor of a model: that of the API, or else of the name.
func vendorOf(api, name string) *vendor {
	if api == apiAnthropic || api == "" && strings.HasPrefix(name, "claude-") {
		return vendorAnthropic
	}
	return vendorOpenAI
}

// register adds the flags about the model.
func (s *modelSettings) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&s.model, "model", "", "the model (default $KITBAG_MODEL)")
	fl.StringVar(&s.api, "api", "", "its API: "+strings.Join(apis, ", ")+" (default $KITBAG_API, or by the name of the model)")
	fl.StringVar(&s.endpoint.url, "base-url", "", "the `URL` of the model's endpoint (default $OPENAI_BASE_URL, or $ANTHROPIC_BASE_URL)")
	fl.StringArrayVar(&s.fallback, "fallback", nil, "a `MODEL` to call if the others before it fail, repeatable")
	fl.StringVar(&s.effort, "effort", "", "the effort of the model's reasoning, such as low or high")
	fl.StringVar(&s.thinking, "thinking", "", "the thinking of Claude models: adaptive, off, or the most `TOKENS`")
	fl.StringVar(&s.cache, "cache", "", "how long Anthropic keeps the prompt for the next request: 1h or off (default five minutes)")
}

// apply sets from c what neither a flag nor a variable sets.
func (s *modelSettings) apply(c *modelSettings, unset func(flag string) bool) {
	for _, m := range []struct {
		flag, variable string
		to             *string
		from           string
	}{
		{"model", "KITBAG_MODEL", &s.model, c.model},
		{"api", "KITBAG_API", &s.api, c.api},
		{"effort", "", &s.effort, c.effort},
		{"thinking", "", &s.thinking, c.thinking},
		{"cache", "", &s.cache, c.cache},
	} {
		if m.from != "" && unset(m.flag) && (m.variable == "" || os.Getenv(m.variable) == "") {
			*m.to = m.from
		}
	}
	if len(c.fallback) > 0 && unset("fallback") {
		s.fallback = c.fallback
	}
	if unset("base-url") {
		s.endpoint = c.endpoint
	}
	s.lateTools = c.lateTools
}

// merge returns s with the settings of other where s has none.
func (s *modelSettings) merge(other *modelSettings) modelSettings {
	m := modelSettings{
		model:     cmp.Or(s.model, other.model),
		api:       cmp.Or(s.api, other.api),
		endpoint:  cmp.Or(s.endpoint, other.endpoint),
		fallback:  s.fallback,
		effort:    cmp.Or(s.effort, other.effort),
		thinking:  cmp.Or(s.thinking, other.thinking),
		cache:     cmp.Or(s.cache, other.cache),
		lateTools: cmp.Or(s.lateTools, other.lateTools),
	}
	if len(m.fallback) == 0 {
		m.fallback = other.fallback
	}
	return m
}

// wants calls add for each setting of a configuration.
func (s *modelSettings) wants(add func(key, value string)) {
	add("model", s.model)
	add("api", s.api)
	add("baseURL", s.endpoint.url)
	for _, name := range s.fallback {
		add("fallback", name)
	}
	add("effort", s.effort)
	add("thinking", s.thinking)
	add("cache", s.cache)
	if s.lateTools != nil {
		add("lateTools", fmt.Sprint(*s.lateTools))
	}
}

// names returns the models, in the order in which they are called.
func (s *modelSettings) names() []string {
	return append([]string{cmp.Or(s.model, os.Getenv("KITBAG_MODEL"))}, s.fallback...)
}

// openModel opens the model, which calls the next one if one fails.
func (s *modelSettings) openModel() (model.Model, error) {
	names := s.names()
	models := make([]model.Model, len(names))
	for i, name := range names {
		var err error
		if models[i], err = s.openNamed(name); err != nil {
			return nil, err
		}
		if len(names) > 1 {
			retry := middleware.RetryConfig{}
			if i+1 < len(names) {
				retry.Retries = 1 // the next model answers sooner than one that is overloaded
			}
			models[i] = middleware.Retry(models[i], retry)
		}
	}
	if len(models) == 1 {
		return models[0], nil
	}
	return middleware.Fallback(models, middleware.FallbackConfig{}), nil
}

// openNamed opens one of the models. The key is read from the environment only: a flag would be visible to every
// user of the machine, and files end up in repositories.
func (s *modelSettings) openNamed(name string) (model.Model, error) {
	api := cmp.Or(s.api, os.Getenv("KITBAG_API"))
	if name == "" {
		return nil, errors.New("no model; set KITBAG_MODEL or add --model, with a name that the server knows (kitbag demo needs none)")
	}
	if api != "" && !slices.Contains(apis, api) {
		return nil, usage("unknown API %q in --api, KITBAG_API or kitbag.json; choose from %s", api, strings.Join(apis, ", "))
	}
	v := vendorOf(api, name)
	url, own := os.Getenv(v.url), cmp.Or(s.endpoint.vendor, vendorOf(api, s.names()[0]))
	var late *bool
	if own == v { // a flag's URL wins over the variable, which wins over a file's
		late = s.lateTools
		if s.endpoint.vendor == nil {
			url = cmp.Or(s.endpoint.url, url)
		} else {
			url = cmp.Or(url, s.endpoint.url)
		}
	}
	var extra map[string]json.RawMessage
	if s.effort != "" {
		level, err := json.Marshal(s.effort)
		if err != nil {
			return nil, err
		}
		extra = map[string]json.RawMessage{"reasoning_effort": level}
	}
	if v == vendorOpenAI {
		return openai.New(openai.Config{Model: name, BaseURL: url, Key: os.Getenv(v.key), API: openai.API(api), Extra: extra, LateTools: late})
	}
	thinking, err := parseThinking(s.thinking)
	if err != nil {
		return nil, err
	}
	m, err := anthropic.New(anthropic.Config{Model: name, BaseURL: url, Key: os.Getenv(v.key), Extra: extra, LateTools: late,
		Thinking: thinking, Cache: anthropic.Cache(s.cache)})
	if err != nil && api == "" && os.Getenv(v.key) == "" && os.Getenv(vendorOpenAI.url) != "" {
		err = fmt.Errorf("%w; if the server of OPENAI_BASE_URL has %s, set KITBAG_API=chat", err, name)
	}
	return m, err
}

// parseThinking reads --thinking.
func parseThinking(text string) (anthropic.Thinking, error) {
	tokens, err := strconv.Atoi(text)
	switch {
	case text == "":
		return anthropic.Thinking{}, nil
	case text == "adaptive":
		return anthropic.Thinking{Mode: anthropic.ThinkingAdaptive}, nil
	case text == "off":
		return anthropic.Thinking{Mode: anthropic.ThinkingOff}, nil
	case err != nil:
		return anthropic.Thinking{}, usage("--thinking %q: it must be adaptive, off, or a number of tokens such as 8000", text)
	}
	return anthropic.Thinking{Mode: anthropic.ThinkingBudget, Budget: tokens}, nil
}

// remedy returns what the user can do about a failed model call; "" if that is not known.
func (s *modelSettings) remedy(e *model.Error) string {
	var keys, urls []string
	for _, name := range s.names() {
		v := vendorOf(cmp.Or(s.api, os.Getenv("KITBAG_API")), name)
		if !slices.Contains(keys, v.key) {
			keys, urls = append(keys, v.key), append(urls, v.url)
		}
	}
	key, url := strings.Join(keys, " and "), strings.Join(urls, ", ")+" or --base-url"
	switch {
	case e.Status == http.StatusNotFound:
		return "check the model, KITBAG_MODEL or --model, and the server, " + url
	case e.Kind == model.KindAuthentication:
		return "check " + key
	case e.Kind == model.KindConnection:
		return "check that the server runs, and " + url
	}
	return ""
}

// modelKeys returns the keys of the models in the environment.
func modelKeys() (keys []string) {
	for _, v := range []*vendor{vendorOpenAI, vendorAnthropic} {
		if key := os.Getenv(v.key); key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// useTable sets the window and the price of the models, if they are known and needed. It returns the price, nil if
// it is not known.
func (f *agentFlags) useTable(cfg *agent.Config, names ...string) (price func(string, message.Usage) float64, err error) {
	table := catalog.Default()
	if f.models != "" {
		data, err := readSmall(f.models, os.Stat)
		var own *catalog.Table
		if err == nil {
			own, err = catalog.Parse(data)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.models, err)
		}
		table = table.With(own)
	}
	cfg.Window.Tokens = cmp.Or(cfg.Window.Tokens, smallestWindow(table, names))
	for _, name := range slices.Backward(names) { // the first one's prices are for answers without a known model
		if price, err = table.Price(name); err != nil {
			break
		}
	}
	if err != nil && cfg.Limits.Cost > 0 {
		return nil, fmt.Errorf("--max-cost: %w; add it to a file that kitbag.json names as models (kitbag run --help)", err)
	}
	if err != nil {
		return nil, nil // not known
	}
	if cfg.Limits.Cost > 0 {
		cfg.Limits.Price = price
	}
	return price, nil
}

// smallestWindow returns how many tokens a request to any of the models may have; 0 if none is known.
func smallestWindow(table *catalog.Table, names []string) (least int) {
	for _, name := range names {
		if m, ok := table.Find(name); ok && m.Prompt() > 0 && (least == 0 || m.Prompt() < least) {
			least = m.Prompt()
		}
	}
	return least
}
