package twins

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

// paramKindGone compares both sides while the definition of a kind of parameters is deleted,
// and when it is there again.
func (tw *policyTwins) paramKindGone(t *testing.T, scenarios []*scenario) {
	t.Helper()
	own := scenarios[slices.IndexFunc(scenarios, func(s *scenario) bool { return s.name == "parameters" })]
	requests := slices.DeleteFunc(slices.Clone(own.Requests),
		func(r policyRequest) bool { return !strings.Contains(r.Send, "/configmaps?dryRun=All") })
	answers := func(side int) (all []string, err error) {
		for i := range requests {
			answer, sendErr := tw.send(side, &requests[i], "")
			all, err = append(all, answer), errors.Join(err, sendErr)
		}
		return all, err
	}
	// await waits until a side answers some of the requests differently than before.
	await := func(what string, side int, before []string) (now []string) {
		cluster.Await(t, what, func() (err error) {
			if now, err = answers(side); err == nil && slices.Equal(now, before) {
				err = errors.New("it answers as before")
			}
			return err
		})
		return now
	}
	var before, without [2][]string
	for side, s := range tw.on {
		before[side] = await("answers", side, nil)
		s.MustKubectl(t, "", "delete", "crd", "limits.example.com")
		without[side] = await("parameters to go", side, before[side])
	}
	tw.wantSame(t, "without the kind", answers)
	for side, s := range tw.on {
		s.MustKubectl(t, "", "apply", "-f", "testdata/policies.crds/")
		s.AwaitCRDs(t)
		for i := range own.Given {
			if own.Given[i].GetKind() == "Limit" {
				if err := create(s, own.Given[i].DeepCopy()); err != nil {
					t.Fatal(err)
				}
			}
		}
		await("parameters to be back", side, without[side])
	}
	tw.wantSame(t, "with the kind again", answers)
}

// wantSame waits until both sides give the same answers.
func (tw *policyTwins) wantSame(t *testing.T, when string, answers func(side int) ([]string, error)) {
	t.Helper()
	cluster.Await(t, "the same answers "+when, func() error {
		inTree, err := answers(0)
		ours, ourErr := answers(1)
		for i := range inTree {
			if inTree[i] != ours[i] {
				err = errors.Join(err, fmt.Errorf("with fastadmit %s\nin-tree        %s", ours[i], inTree[i]))
			}
		}
		return errors.Join(err, ourErr)
	})
}
