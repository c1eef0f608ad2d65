package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// A control is a case of tests.json: a template of an object with some other values.
type control struct {
	Name            string   `json:"name"`
	Template        string   `json:"template"`
	Changes         []string `json:"field_change_list"`
	Expected        string   `json:"expected"`
	BindingTemplate string   `json:"binding_template"`
	ParamTemplate   string   `json:"param_template"`
}

// writeControls writes the tests of cel-admission-library as suites of fastadmit to a folder.
// It returns false if there are none.
func writeControls(library, folder string) (found bool, err error) {
	files, err := filepath.Glob(filepath.Join(library, "controls", "*", "tests.json"))
	if err != nil {
		return false, err
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return false, err
		}
		var all []control
		if err := kjson.UnmarshalCaseSensitivePreserveInts(content, &all); err != nil {
			return false, fmt.Errorf("%s: %w", file, err)
		}
		policy, err := readYAML(filepath.Join(filepath.Dir(file), "policy.yaml"))
		if err != nil {
			return false, err
		}
		for i := range all {
			suite, err := all[i].suite(library, policy)
			if err != nil {
				return false, fmt.Errorf("%s: %s: %w", file, all[i].Name, err)
			}
			name := fmt.Sprintf("%s-%d.test.yaml", filepath.Base(filepath.Dir(file)), i)
			const readable = 0o600
			if err := os.WriteFile(filepath.Join(folder, name), suite, readable); err != nil {
				return false, err
			}
		}
	}
	return len(files) > 0, nil
}

type object = map[string]any

// suite returns a suite with the case, which has a binding and parameters of its own.
func (c *control) suite(library string, policy any) ([]byte, error) {
	resources := filepath.Join(library, "test-resources")
	name, _ := policy.(object)["metadata"].(object)["name"].(string)
	changed := func(template, otherwise string, changes ...string) (any, error) {
		if template == "" {
			template = otherwise
		}
		value, err := readYAML(filepath.Join(resources, template))
		for _, change := range changes {
			path, text, ok := strings.Cut(change, "=")
			if !ok {
				return nil, fmt.Errorf("got the change %q, want path=value", change)
			}
			var to any = text
			if kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &to) != nil {
				to = text
			}
			value = set(value, strings.Split(path, "."), to)
		}
		return value, err
	}
	tested, err := changed(c.Template, "", c.Changes...)
	if err != nil {
		return nil, err
	}
	binding, err := changed(c.BindingTemplate, "policy-binding.yaml", "spec.policyName="+name, "metadata.name="+name+"-binding", "spec.paramRef.name="+name+"-params")
	if err != nil {
		return nil, err
	}
	param, err := changed(c.ParamTemplate, "default-control-configuration.yaml", "metadata.name="+name+"-params")
	if err != nil {
		return nil, err
	}
	definition, err := readYAML(filepath.Join(library, "configuration", "policy-configuration-definition.yaml"))
	if err != nil {
		return nil, err
	}
	expect := object{"decision": "allowed"}
	switch c.Expected {
	case "fail":
		expect = object{"decision": "denied", "policy": name}
	case "warn":
		expect["warnings"] = []any{object{"contains": name}}
	}
	return json.Marshal(object{
		"apiVersion": "fastadmit.io/v1alpha1", "kind": "TestSuite", "policies": []any{policy, binding}, "cluster": []any{definition, param},
		"cases": []any{object{"name": c.Name, "object": tested, "expect": expect}},
	})
}

func readYAML(file string) (value any, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	text, err := yaml.YAMLToJSON(content)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, &value)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return value, nil
}

// set returns a value with another value at a path, such as spec, containers, [0], image.
func set(value any, path []string, to any) any {
	if len(path) == 0 {
		return to
	}
	if number, isIndex := strings.CutPrefix(path[0], "["); isIndex {
		list, _ := value.([]any)
		at, err := strconv.Atoi(strings.TrimSuffix(number, "]"))
		if err != nil {
			return value
		}
		for len(list) <= at {
			list = append(list, nil)
		}
		list[at] = set(list[at], path[1:], to)
		return list
	}
	members, _ := value.(object)
	if members == nil {
		members = make(object)
	}
	members[path[0]] = set(members[path[0]], path[1:], to)
	return members
}
