package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// The apiVersion and kind of the output of -o json and -o yaml.
const (
	APIVersion = "fastadmit.io/v1alpha1"
	Kind       = "ReviewReport"
)

// jsonWriter writes a ReviewReport, a result at a time.
type jsonWriter struct {
	w     io.Writer
	began bool
}

func newJSON(w io.Writer, _ *Options) Writer { return &jsonWriter{w: w} }

func (j *jsonWriter) begin() error {
	_, err := fmt.Fprintf(j.w, "{\n  \"apiVersion\": %q,\n  \"kind\": %q,\n  \"results\": [", APIVersion, Kind)
	return err
}

// Write implements Writer.
func (j *jsonWriter) Write(r *Result) error {
	separator := ","
	if !j.began {
		separator = ""
		if err := j.begin(); err != nil {
			return err
		}
	}
	j.began = true
	text, err := json.MarshalIndent(r, "    ", "  ")
	if err == nil {
		_, err = fmt.Fprintf(j.w, "%s\n    %s", separator, escapeJSON(text))
	}
	return err
}

// Close implements Writer.
func (j *jsonWriter) Close(s *Summary) error {
	if !j.began {
		if err := j.begin(); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(s, "  ", "  ")
	if err == nil {
		_, err = fmt.Fprintf(j.w, "\n  ],\n  \"summary\": %s\n}\n", escapeJSON(text))
	}
	return err
}

// yamlWriter writes a ReviewReport, a result at a time.
type yamlWriter struct {
	w     io.Writer
	began bool
}

func newYAML(w io.Writer, _ *Options) Writer { return &yamlWriter{w: w} }

// Write implements Writer.
func (y *yamlWriter) Write(r *Result) error {
	if !y.began {
		if _, err := fmt.Fprintf(y.w, "apiVersion: %s\nkind: %s\nresults:\n", APIVersion, Kind); err != nil {
			return err
		}
	}
	y.began = true
	asJSON, err := json.Marshal(r)
	if err != nil {
		return err
	}
	text, err := Document(asJSON)
	if err != nil {
		return err
	}
	element := "- " + strings.TrimSuffix(strings.ReplaceAll(string(text), "\n", "\n  "), "  ")
	_, err = io.WriteString(y.w, element)
	return err
}

// Close implements Writer.
func (y *yamlWriter) Close(s *Summary) error {
	asJSON, err := json.Marshal(s)
	if err != nil {
		return err
	}
	text, err := Document(asJSON)
	if err != nil {
		return err
	}
	head := ""
	if !y.began {
		head = fmt.Sprintf("apiVersion: %s\nkind: %s\nresults: []\n", APIVersion, Kind)
	}
	_, err = fmt.Fprintf(y.w, "%ssummary:\n  %s\n", head, strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n  "))
	return err
}
