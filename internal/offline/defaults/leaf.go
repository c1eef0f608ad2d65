package defaults

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// leaf returns the part of a schema that is about a value itself, as the validator of kube-apiserver wants it. Required fields and
// patterns are left out: the one's errors are compared with each other, and the other's programs are never forgotten. uniqueItems
// is forbidden in a CustomResourceDefinition. A leaf is larger than its JSON, so it is not kept.
func (s *structure) leaf(minor int) *spec.Schema {
	p := s.props
	is := func(name string) bool { yes, _ := p[name].(bool); return yes }
	text := func(name string) string { text, _ := p[name].(string); return text }
	leaf := new(spec.Schema)
	if kind := text("type"); kind != "" {
		leaf.Type = spec.StringOrArray{kind}
	}
	if is("x-kubernetes-int-or-string") {
		leaf.Type = spec.StringOrArray{"integer", "string"}
	}
	leaf.Nullable = s.nullable
	leaf.Maximum, leaf.ExclusiveMaximum = float(p["maximum"]), is("exclusiveMaximum")
	leaf.Minimum, leaf.ExclusiveMinimum = float(p["minimum"]), is("exclusiveMinimum")
	leaf.MultipleOf = float(p["multipleOf"])
	leaf.MaxLength, leaf.MinLength = whole(p["maxLength"]), whole(p["minLength"])
	leaf.MaxItems, leaf.MinItems = whole(p["maxItems"]), whole(p["minItems"])
	leaf.MaxProperties, leaf.MinProperties = whole(p["maxProperties"]), whole(p["minProperties"])
	leaf.Enum, _ = p["enum"].([]any)
	if format := text("format"); isFormat(leaf.Type, format, minor) {
		leaf.Format = format
	}
	return leaf
}

func float(value any) *float64 {
	switch value := value.(type) {
	case float64:
		return &value
	case int64:
		return new(float64(value))
	}
	return nil
}

func whole(value any) *int64 {
	switch value := value.(type) {
	case int64:
		return &value
	case float64:
		if n := int64(value); float64(n) == value {
			return &n
		}
	}
	return nil
}

// formats are the formats of strings (k8s.io/apiextensions-apiserver pkg/apiserver/validation formats.go), without dashes. Those of
// later are known since 1.34.
const (
	formats = " bsonobjectid uri email hostname ipv4 ipv6 cidr mac uuid uuid3 uuid4 uuid5 isbn isbn10 isbn13 creditcard ssn hexcolor " +
		"rgbcolor byte password date duration datetime "
	formatsOf34 = " k8sshortname k8slongname "
)

// isFormat reports whether a release knows a format of a type. Other formats are ignored.
func isFormat(types spec.StringOrArray, format string, minor int) bool {
	kind := ""
	if len(types) == 1 {
		kind = types[0]
	}
	switch kind {
	case "", "string":
		name := " " + strings.ReplaceAll(format, "-", "") + " "
		return format != "" && (strings.Contains(formats, name) || minor >= 34 && strings.Contains(formatsOf34, name))
	case "integer":
		return format == "int32" || format == "int64"
	case "number":
		return format == "float" || format == "double"
	}
	return false
}

// patternStepsMax bounds the programs of the patterns of a CustomResourceDefinition: a short pattern such as ((a{30}){30}) makes a
// long one. A step has about 40 bytes, and those of usual definitions have less than a hundred thousand steps.
const patternStepsMax = 2_000_000

var errPatterns = errors.New("the patterns of its CustomResourceDefinition are too long to be checked")

// patterns are the programs of the patterns of a schema.
type patterns struct {
	mu    sync.Mutex
	known map[string]*program
	steps int
}

type program struct {
	*regexp.Regexp
	steps int
	err   error
}

// compile returns the program of a pattern, and about how many steps it has for each byte of a text.
func (p *patterns) compile(pattern string) (*regexp.Regexp, int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.known[pattern]
	if known == nil {
		known = new(program)
		parsed, err := syntax.Parse(pattern, syntax.Perl)
		if err == nil {
			known.steps = stepsIn(parsed)
		}
		switch p.steps += known.steps; {
		case err != nil: // kube-apiserver refuses such a definition
			known.err = err
		case p.steps > patternStepsMax:
			known.err = errPatterns
		default:
			known.Regexp, known.err = regexp.Compile(pattern)
		}
		if p.known == nil {
			p.known = make(map[string]*program)
		}
		p.known[pattern] = known
	}
	return known.Regexp, known.steps, known.err
}

// stepsIn returns about how many steps the program of a pattern has.
func stepsIn(re *syntax.Regexp) int {
	steps := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		steps += stepsIn(sub)
	}
	if re.Op == syntax.OpRepeat {
		steps *= max(re.Min, re.Max, 1)
	}
	return min(steps, patternStepsMax+1)
}
