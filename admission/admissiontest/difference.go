package admissiontest

import (
	"bytes"
	"fmt"

	"github.com/pmezard/go-difflib/difflib"
	"sigs.k8s.io/yaml"
)

// Difference compares two JSON texts and returns a unified diff of them as YAML. Lines
// with "-" are only in want, lines with "+" only in got. It is empty if both have the
// same value.
func Difference(got, want []byte) string {
	text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: linesOf(want), FromFile: "want", B: linesOf(got), ToFile: "got", Context: 3,
	})
	if err != nil {
		return fmt.Sprintf("got %s\nwant %s", got, want)
	}
	return text
}

// linesOf returns the lines of a JSON text as YAML. If the text is not JSON, it
// returns the lines of the text.
func linesOf(text []byte) []string {
	if converted, err := yaml.JSONToYAML(text); err == nil {
		text = converted
	}
	return difflib.SplitLines(string(bytes.TrimRight(text, "\n")))
}
