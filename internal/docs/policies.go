package docs

import (
	"fmt"
	"regexp"
	"strings"
)

const policiesFolder = "deploy/chart/policies/"

// computed is what the expressions of variables have that are not for users to change.
var computed = regexp.MustCompile(`\b(object|request|variables)\b`)

// policyTable makes a table of the chart's policies of a kind, which links their pages: the comment at the top of each file, and the
// variables that users can change, with their expressions.
func policyTable(kind string) (string, error) {
	policies, err := shippedPolicies()
	if err != nil {
		return "", err
	}
	table, rows := "| policy | meaning | variables |\n|---|---|---|\n", 0
	for _, p := range policies {
		if p.Kind != kind {
			continue
		}
		var variables []string
		for _, v := range p.settable() {
			variables = append(variables, fmt.Sprintf("`%s`: `%s`", v.Name, v.Expression))
		}
		table += fmt.Sprintf("| [%s](policy-library/%[1]s.md) | %s | %s |\n", p.name, tableCell(p.about), strings.Join(variables, ", "))
		rows++
	}
	if rows == 0 {
		return "", fmt.Errorf("%s has no %s", policiesFolder, kind)
	}
	return table, nil
}
