package suite

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/policies"
	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

func (c *conversion) gatekeeper() error {
	s, err := c.gatekeeperSuite()
	if err != nil {
		return err
	}
	if c.checkGatekeeper(); len(c.errs) > 0 {
		return errNothing
	}
	c.checkCases(s)
	if s.Metadata.Name != "" {
		set(c.suite, "name", s.Metadata.Name)
	}
	set(c.suite, "defaults", false)
	table := discovery.NewTable(nil)
	cluster := &yaml.Node{Kind: yaml.SequenceNode}
	s.eachCase(func(t *gatekeeperTest, of *gatekeeperCase, path string) {
		name := t.Name
		if of != nil {
			name += "/" + of.Name
		}
		switch {
		case s.Skip || t.Skip || of != nil && of.Skip:
			c.skipped = append(c.skipped, name)
		case c.faulty[path]:
		case of == nil:
			c.errs = append(c.errs, c.noCases(path))
		default:
			before := len(c.errs)
			members, err := c.gatekeeperMembers(t, of, path, table, cluster)
			if err != nil {
				c.errs = append(c.errs, err)
			} else if len(c.errs) == before {
				c.addCase(name, members)
			}
		}
	})
	if len(cluster.Content) > 0 {
		set(c.suite, "cluster", cluster)
	}
	return nil
}

// checkGatekeeper refuses what the suite says and ours cannot, apart from its tests.
func (c *conversion) checkGatekeeper() {
	head := []string{"apiVersion", "kind", "metadata"}
	c.members("", c.text, append(head, "skip", "tests"), nil)
	c.members("metadata", member(c.text, "metadata"), []string{"name"}, []string{"labels", "annotations", "namespace"})
}

// checkCases refuses what tests and their cases say and a suite cannot.
func (c *conversion) checkCases(s *gatekeeperSuite) {
	for i, test := range elements(c.text, "tests") {
		path, before := index("tests", i), len(c.errs)
		c.members(path, test, strings.Fields("name template constraint expansion invalid skip cases"), nil)
		if i < len(s.Tests) && s.Tests[i].Invalid && len(s.Tests[i].Cases) > 0 {
			c.refuse(path+".invalid", "a suite cannot say that a Constraint is invalid; remove it from a copy of the suite")
		}
		isFaulty := len(c.errs) > before
		c.faulty[path] = isFaulty
		for j, of := range elements(test, "cases") {
			path, before := index(path+".cases", j), len(c.errs)
			c.members(path, of, strings.Fields("name object inventory assertions skip"), nil)
			for n, text := range elements(of, "assertions") {
				c.members(index(path+".assertions", n), text, strings.Fields("violations message"), nil)
			}
			c.faulty[path] = isFaulty || len(c.errs) > before
		}
	}
}

// gatekeeperMembers returns the fields of a case. Definitions of the kinds of objects are added to cluster.
func (c *conversion) gatekeeperMembers(t *gatekeeperTest, of *gatekeeperCase, path string, table *discovery.Table, cluster *yaml.Node) (*yaml.Node, error) {
	policy, setup, err := c.gatekeeperSetup(t, of, path)
	if err != nil {
		return nil, err
	}
	given, err := c.read(path, t.Template, t.Constraint)
	if err != nil {
		return nil, err
	}
	ours := policies.Translate(given, translate.Options{Now: time.Now()})
	switch {
	case len(ours.Policies) != 1 || isBound(ours.Policies[0]) != isBound(policy):
		return nil, c.document.Errorf(path, "the scopedEnforcementActions of the Constraint in %s are others for %s than for requests, which a suite "+
			"reviews; give the Constraint the same actions for both", t.Constraint, gatorPoint)
	case !isOperation(setup.Operation):
		return nil, c.document.Errorf(path+".object", "got the operation %q, want CREATE, UPDATE or DELETE", setup.Operation)
	}
	members := mapping()
	names := []string{c.given(t.Template)}
	if constraint := c.given(t.Constraint); !slices.Contains(names, constraint) {
		names = append(names, constraint)
	}
	set(members, "policies", names)
	if len(of.Inventory) > 0 {
		var files []string
		for _, name := range of.Inventory {
			files = append(files, c.given(name))
		}
		set(members, "cluster", files)
	}
	definitions, faults := c.definitions(path+".object", table, slices.Concat(setup.Objects, setup.Old))
	for _, at := range slices.Sorted(maps.Keys(faults)) {
		return nil, c.document.Errorf(path+".object", "%s", faults[at])
	}
	cluster.Content = append(cluster.Content, definitions...)
	c.reviewed(members, of, setup, path+".object")
	expect, err := c.assertions(of, path)
	if err != nil {
		return nil, err
	}
	set(members, "expect", mapping("policies", []any{map[string]any{"names": []string{policy.Validating.Name}, "messages": expect}}))
	return members, nil
}

// reviewed adds the object of a case: its file, or what its AdmissionReview has.
func (c *conversion) reviewed(members *yaml.Node, of *gatekeeperCase, setup *Setup, path string) {
	if objects, err := c.read(path, of.Object); err == nil && objects[0].Kind != "AdmissionReview" {
		set(members, "object", c.given(of.Object))
		return
	}
	set(members, "object", c.object(path, &setup.Objects[0]))
	for _, old := range setup.Old[:min(len(setup.Old), 1)] {
		set(members, "oldObject", c.object(path, &manifest.Item{Object: old.Object}))
	}
	request(members, setup.Operation, &setup.User)
}

// assertions returns the expected messages of a case.
func (c *conversion) assertions(of *gatekeeperCase, path string) (all []any, err error) {
	for i := range of.Assertions {
		a := &of.Assertions[i]
		if _, err := a.compare(nil); err != nil { // what is wrong with it
			return nil, c.document.Errorf(index(path+".assertions", i), "%v", err)
		}
		expect := make(map[string]any)
		if a.Message != nil {
			expect["text"] = map[string]any{"matches": *a.Message}
		}
		switch v := a.Violations.(type) {
		case bool:
			if !v {
				expect["count"] = 0
			}
		case int64:
			if v < 0 {
				return nil, c.document.Errorf(index(path+".assertions", i), "violations: got %d, want yes, no or a number", v)
			}
			expect["count"] = v
		default:
			if fmt.Sprint(v) == "no" {
				expect["count"] = 0
			}
		}
		all = append(all, expect)
	}
	return all, nil
}
