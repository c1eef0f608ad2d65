package docs

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

const policiesFolder = "deploy/chart/policies/"

// computed is what the expressions of variables have that are not for users to change.
var computed = regexp.MustCompile(`\b(object|request|variables)\b`)

// policyTable makes a table of the chart's policies of a kind: the comment at the top of each file, and the variables
// that are constants, with their expressions.
func policyTable(kind string) (string, error) {
	files, err := filepath.Glob(policiesFolder + "*.yaml")
	if err != nil {
		return "", err
	}
	table, rows := "| policy | meaning | variables |\n|---|---|---|\n", 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if strings.HasSuffix(name, ".test") {
			continue
		}
		text, err := Read(file)
		if err != nil {
			return "", err
		}
		var policy struct {
			Kind string
			Spec struct {
				Variables []struct{ Name, Expression string }
			}
		}
		if err := yaml.Unmarshal([]byte(text), &policy); err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		if policy.Kind != kind {
			continue
		}
		about, _, _ := strings.Cut(text, "\napiVersion:")
		about = strings.TrimPrefix(strings.ReplaceAll(about, "\n#", ""), "# ")
		var variables []string
		for _, v := range policy.Spec.Variables {
			if !computed.MatchString(v.Expression) {
				variables = append(variables, fmt.Sprintf("`%s`: `%s`", v.Name, v.Expression))
			}
		}
		table += fmt.Sprintf("| [%s](../%s) | %s | %s |\n", name, file, tableCell(about), strings.Join(variables, ", "))
		rows++
	}
	if rows == 0 {
		return "", fmt.Errorf("%s has no %s", policiesFolder, kind)
	}
	return table, nil
}
