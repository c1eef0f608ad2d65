package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"
)

// sarif writes SARIF 2.1.0, which code scanning reads
// (https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html).
//
// The results come first, so that they need not be kept until the rules are known.
type sarif struct {
	w       io.Writer
	o       *Options
	began   bool
	rules   []sarifRule
	indexes map[string]int // of rules, by their ids
}

// documentation is where the output of review is described.
const documentation = "https://github.com/fastadmit/fastadmit/blob/main/docs/review.md"

type sarifText struct {
	Text string `json:"text"`
}

// A sarifRule has what GitHub requires of a rule (SARIF-Multitool GH2012).
type sarifRule struct {
	ID               string    `json:"id"`
	ShortDescription sarifText `json:"shortDescription"`
	FullDescription  sarifText `json:"fullDescription"`
	Help             sarifHelp `json:"help"`
}

// sarifHelp is the text of a policy, or where to read about a plugin. GitHub shows it beside a finding.
type sarifHelp struct {
	Text     string `json:"text"`
	Markdown string `json:"markdown"`
}

type sarifResult struct {
	RuleID    string          `json:"ruleId"`
	RuleIndex int             `json:"ruleIndex"`
	Level     string          `json:"level"`
	Message   sarifText       `json:"message"`
	Locations []sarifLocation `json:"locations"`
	// Properties are those of the cause.
	Properties *about `json:"properties,omitempty"`
}

type sarifLocation struct {
	Physical *sarifPhysical `json:"physicalLocation,omitempty"`
	Logical  []sarifLogical `json:"logicalLocations,omitempty"`
}

type sarifPhysical struct {
	Artifact struct {
		URI string `json:"uri"`
	} `json:"artifactLocation"`
	Region *sarifRegion `json:"region,omitempty"`
}

type sarifRegion struct {
	StartLine int `json:"startLine"`
}

type sarifLogical struct {
	FullyQualifiedName string `json:"fullyQualifiedName"`
	Kind               string `json:"kind"`
}

func newSARIF(w io.Writer, o *Options) Writer {
	return &sarif{w: w, o: o, rules: []sarifRule{}, indexes: make(map[string]int)}
}

// Write implements Writer.
func (s *sarif) Write(r *Result) error {
	for _, p := range problems(r) {
		if err := s.write(&p, r); err != nil {
			return err
		}
	}
	return nil
}

// write writes a problem of an object.
func (s *sarif) write(p *problem, r *Result) error {
	result := sarifResult{
		RuleID: p.rule, RuleIndex: s.rule(p.rule), Level: string(p.level),
		Message: sarifText{p.title + ": " + p.message}, Locations: []sarifLocation{s.location(r, p.line)}, Properties: p.about,
	}
	separator := ","
	if !s.began {
		separator = ""
		if err := s.begin(); err != nil {
			return err
		}
	}
	text, err := indentedJSON(result, "        ")
	if err == nil {
		_, err = fmt.Fprintf(s.w, "%s\n        %s", separator, text)
	}
	return err
}

func (s *sarif) begin() error {
	s.began = true
	_, err := io.WriteString(s.w, "{\n  \"$schema\": \"https://json.schemastore.org/sarif-2.1.0.json\",\n"+
		"  \"version\": \"2.1.0\",\n  \"runs\": [\n    {\n      \"results\": [")
	return err
}

// indentedJSON encodes a value. Characters of HTML stay as they are.
func indentedJSON(value any, prefix string) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetIndent(prefix, "  ")
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return escapeJSON(bytes.TrimSpace(b.Bytes())), err
}

// rule returns the index of a rule.
func (s *sarif) rule(id string) int {
	if i, ok := s.indexes[id]; ok {
		return i
	}
	about := s.o.Rules[id]
	switch {
	case id == ruleInput:
		about = "the input can be read"
	case id == rulePolicy:
		about = "rules and expressions of policies name what exists"
	case id == ruleWarning:
		about = "plugins have no warnings"
	case about == "":
		about = id
	}
	rule := sarifRule{ID: id, ShortDescription: sarifText{about}, FullDescription: sarifText{about}}
	rule.Help = sarifHelp{"See " + documentation, "See <" + documentation + ">"}
	if text := s.o.Policies[id]; text != "" {
		rule.Help = sarifHelp{text, "```yaml\n" + strings.ReplaceAll(text, "```", "` ` `") + "\n```\n"}
	}
	s.indexes[id] = len(s.rules)
	s.rules = append(s.rules, rule)
	return s.indexes[id]
}

func (s *sarif) location(r *Result, line int) (l sarifLocation) {
	if object := r.Object(); object != "" {
		l.Logical = []sarifLogical{{object, "resource"}}
	}
	if r.File != "" {
		l.Physical = new(sarifPhysical)
		l.Physical.Artifact.URI = (&url.URL{Path: filepath.ToSlash(r.File)}).String()
		if line = cmp.Or(line, r.Line); line > 0 {
			l.Physical.Region = &sarifRegion{line}
		}
	}
	return l
}

// Close implements Writer.
func (s *sarif) Close(summary *Summary) error {
	for i := range summary.PolicyNotes {
		n := &summary.PolicyNotes[i]
		p := n.problem()
		if err := s.write(&p, &Result{File: n.File}); err != nil {
			return err
		}
	}
	if !s.began {
		if err := s.begin(); err != nil {
			return err
		}
	}
	invocations := ""
	var notifications []map[string]any
	for _, doubt := range summary.Doubts() {
		notifications = append(notifications, map[string]any{"level": "warning", "message": sarifText{doubt}})
	}
	notes := summary.exceptions()
	if summary.Replay != nil {
		notes = append(notes, summary.Replay.Notes...)
	}
	for _, note := range notes {
		notifications = append(notifications, map[string]any{"level": "note", "message": sarifText{note}})
	}
	if len(notifications) > 0 {
		all := []map[string]any{{"executionSuccessful": true, "toolExecutionNotifications": notifications}}
		text, err := indentedJSON(all, "      ")
		if err != nil {
			return err
		}
		invocations = fmt.Sprintf("      \"invocations\": %s,\n", text)
	}
	tool := map[string]any{"driver": map[string]any{"name": s.o.Tool, "informationUri": documentation, "version": s.o.Version, "rules": s.rules}}
	text, err := indentedJSON(tool, "      ")
	if err == nil {
		_, err = fmt.Fprintf(s.w, "\n      ],\n%s      \"tool\": %s\n    }\n  ]\n}\n", invocations, text)
	}
	return err
}
