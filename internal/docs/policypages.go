package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	policyLibrary = "docs/policy-library.md"
	// policyPagesFolder has a page for each policy of the chart, and nothing else.
	policyPagesFolder = "docs/policy-library/"
)

// A shippedPolicy is a policy of the chart.
type shippedPolicy struct {
	name, file, text string
	about            string // the comment at the top of the file
	constraints      matchConstraints
	Kind             string
	Spec             struct {
		MatchConstraints json.RawMessage
		MatchConditions  []namedExpression
		Variables        []namedExpression
	}
}

type namedExpression struct{ Name, Expression string }

// matchConstraints has all members that a page shows. Other ones are an error.
type matchConstraints struct {
	ResourceRules []struct {
		APIGroups, APIVersions []string
		Resources, Operations  []string
	}
}

// shippedPolicies reads the policies of the chart.
func shippedPolicies() (policies []*shippedPolicy, err error) {
	files, err := filepath.Glob(policiesFolder + "*.yaml")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if strings.HasSuffix(name, ".test") {
			continue
		}
		text, err := Read(file)
		if err != nil {
			return nil, err
		}
		p := &shippedPolicy{name: name, file: filepath.ToSlash(file), text: text}
		err = yaml.Unmarshal([]byte(text), p)
		if err == nil {
			err = yaml.UnmarshalStrict(p.Spec.MatchConstraints, &p.constraints)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		about, _, _ := strings.Cut(text, "\napiVersion:")
		p.about = strings.TrimPrefix(strings.ReplaceAll(about, "\n#", ""), "# ")
		policies = append(policies, p)
	}
	return policies, nil
}

// settable returns the variables that are for users to change: those that are constants.
func (p *shippedPolicy) settable() []namedExpression {
	return slices.DeleteFunc(slices.Clone(p.Spec.Variables), func(v namedExpression) bool { return computed.MatchString(v.Expression) })
}

// comment returns the comment above a match condition or a variable.
func (p *shippedPolicy) comment(name string) string {
	found := regexp.MustCompile(`(?m)((?:^  # .*\n)+)^  - name: ` + regexp.QuoteMeta(name) + "\n").FindStringSubmatch(p.text)
	if found == nil {
		return ""
	}
	return strings.Join(strings.Fields(strings.ReplaceAll(found[1], "  # ", " ")), " ")
}

// policyPages returns the page of each policy of the chart, by name.
func policyPages() (map[string]string, error) {
	policies, err := shippedPolicies()
	if err != nil {
		return nil, err
	}
	library, err := Read(policyLibrary)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fastadmit-docs-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	pages := make(map[string]string)
	for _, p := range policies {
		examples, err := p.examples(dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.file, err)
		}
		pages[policyPagesFolder+p.name+".md"] = fmt.Sprintf("# %s\n\n<!-- generated: policy %[1]s -->\n%s\n%s%s%s%s%s<!-- end -->\n",
			p.name, wrapped("", literal.Replace(p.about)), p.kind(library), p.requests(), p.values(), examples, p.source())
	}
	return pages, nil
}

// literal keeps the text of a comment from being read as Markdown.
var literal = strings.NewReplacer("*", `\*`, "<", "&lt;")

// kind says what kind of policy it is, and which Pod Security Standards it is a part of, according to the table in the library.
func (p *shippedPolicy) kind(library string) string {
	text := fmt.Sprintf("It is a %s, one of the [policies of the chart](../policy-library.md).", p.Kind)
	var standards []string
	for _, standard := range [...]string{"baseline", "restricted"} {
		row := regexp.MustCompile(`(?m)^\| ` + standard + `\b.*$`).FindString(library)
		if found := regexp.MustCompile("`" + p.name + "`( with `[^`]+`)?").FindStringSubmatch(row); found != nil {
			standards = append(standards, standard+found[1])
		}
	}
	if standards != nil {
		text += " It is part of the [Pod Security Standards](../policy-library.md#the-pod-security-standards-as-single-policies): " +
			strings.Join(standards, ", and ") + "."
	}
	return wrapped("", text)
}

// requests says for which requests the policy is evaluated.
func (p *shippedPolicy) requests() string {
	text := "\n| API | resources | operations |\n|---|---|---|\n"
	for _, r := range p.constraints.ResourceRules {
		var apis []string
		for _, group := range r.APIGroups {
			for _, version := range r.APIVersions {
				apis = append(apis, strings.TrimPrefix(group+"/"+version, "/"))
			}
		}
		text += fmt.Sprintf("| %s | %s | %s |\n", codes(apis), codes(r.Resources), strings.Join(r.Operations, ", "))
	}
	if len(p.Spec.MatchConditions) > 0 {
		text += "\nIt is evaluated if these conditions are true:\n\n"
	}
	for _, c := range p.Spec.MatchConditions {
		text += fmt.Sprintf("- `%s`: `%s`\n", c.Name, c.Expression)
		if comment := p.comment(c.Name); comment != "" {
			text += "  " + comment + "\n"
		}
	}
	return text
}

// codes lists words in backquotes.
func codes(words []string) string { return "`" + strings.Join(words, "`, `") + "`" }

// values shows the values of the chart that enable the policy.
func (p *shippedPolicy) values() string {
	text, settable := "\n## Enable it\n\nIn the values of the [chart](../../deploy/chart/README.md):\n\n```yaml\npolicies:\n  shipped:\n    "+
		p.name+":", p.settable()
	validates := p.Kind == "ValidatingAdmissionPolicy"
	switch {
	case validates:
		text += "\n      validationActions: [Deny] # the default is [Warn]\n"
	case len(settable) == 0:
		text += " {}\n"
	default:
		text += "\n"
	}
	if len(settable) > 0 {
		text += "      variables: # the defaults: change them, or leave them out\n"
	}
	for _, v := range settable {
		if comment := p.comment(v.Name); comment != "" {
			text += wrapped("        # ", comment)
		}
		if value := fmt.Sprintf("        %s: %q\n", v.Name, v.Expression); len(value) <= lineMax {
			text += value
		} else {
			text += fmt.Sprintf("        %s: >-\n%s", v.Name, wrapped("          ", v.Expression))
		}
	}
	text += "```\n\n"
	var links string
	if validates {
		links = "First [find out what it would deny](../tightening.md). "
		if strings.Contains(p.text, "- apiGroups: [rbac.authorization.k8s.io]") {
			links += "It also checks administrators and installers: see [Permissions](../policy-library.md#permissions). "
		}
	}
	return text + wrapped("", links+"You can also use it [without the chart](../policy-library.md#without-the-chart).")
}

// lineMax is the length of lines that are wrapped.
const lineMax = 130

// wrapped breaks a text into lines that begin with the prefix.
func wrapped(prefix, text string) string {
	var lines []string
	line := prefix
	for word := range strings.FieldsSeq(text) {
		if line != prefix && len(line)+len(word) > lineMax {
			lines, line = append(lines, line), prefix
		}
		line += word + " "
	}
	var all string
	for _, line := range append(lines, line) {
		all += strings.TrimRight(line, " ") + "\n"
	}
	return all
}

// source shows the policy without the comment at the top.
func (p *shippedPolicy) source() string {
	_, text, _ := strings.Cut(p.text, "\napiVersion:")
	return fmt.Sprintf("\n## The policy\n\n[%s.yaml](../../%s):\n\n```yaml\napiVersion:%s```\n", p.name, p.file, text)
}
