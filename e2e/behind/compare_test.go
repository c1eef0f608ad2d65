package behind

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/tally"
)

// differencesMax is how many differences a failed test shows.
const differencesMax = 10

// A step is a request for an object.
type step struct {
	about string
	send  func(ctx context.Context, r dynamic.ResourceInterface, object *unstructured.Unstructured) (*unstructured.Unstructured, error)
}

// A scenario is an object and the requests for it, in order.
type scenario struct {
	about  string
	object *unstructured.Unstructured
	steps  []step
}

func dryRun(dry bool) []string {
	if dry {
		return []string{metav1.DryRunAll}
	}
	return nil
}

func create(dry bool) step {
	return step{fmt.Sprint("create, dry run ", dry), func(ctx context.Context, r dynamic.ResourceInterface,
		object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return r.Create(ctx, object.DeepCopy(), metav1.CreateOptions{DryRun: dryRun(dry)})
	}}
}

// update reads the object, changes it and writes it.
func update(dry bool, change func(u *unstructured.Unstructured)) step {
	return step{fmt.Sprint("update, dry run ", dry), func(ctx context.Context, r dynamic.ResourceInterface,
		object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		found, err := r.Get(ctx, object.GetName(), metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		change(found)
		return r.Update(ctx, found, metav1.UpdateOptions{DryRun: dryRun(dry)})
	}}
}

func patch(kind types.PatchType, dry bool, body string, subresources ...string) step {
	return step{fmt.Sprintf("%s %s, dry run %t: %s", kind, subresources, dry, body),
		func(ctx context.Context, r dynamic.ResourceInterface, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			o := metav1.PatchOptions{DryRun: dryRun(dry), FieldManager: "e2e"}
			if kind == types.ApplyPatchType {
				o.Force = new(true)
			}
			return r.Patch(ctx, object.GetName(), kind, []byte(body), o, subresources...)
		}}
}

func remove(dry bool) step {
	return step{fmt.Sprint("delete, dry run ", dry), func(ctx context.Context, r dynamic.ResourceInterface,
		object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return nil, r.Delete(ctx, object.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), DryRun: dryRun(dry)})
	}}
}

// await waits until both sides answer the creation of the manifest, in a dry run, with
// the text.
func (s sides) await(t *testing.T, manifest, text string) {
	t.Helper()
	object := parse(t, manifest)
	for _, side := range s {
		cluster.Await(t, "webhooks in use", func() error {
			r, err := side.Resource(object)
			if err != nil {
				return err
			}
			_, err = create(true).send(t.Context(), r, object)
			return cluster.WantError(err, text)
		})
	}
}

// answer returns a side's answer to a step, and the object that it has stored then.
func answer(t *testing.T, side *cluster.APIServer, sc *scenario, st *step) string {
	t.Helper()
	warnings := new(cluster.Warnings)
	r, err := side.WithWarnings(t, warnings).Resource(sc.object)
	if err != nil {
		return err.Error()
	}
	got, err := st.send(t.Context(), r, sc.object)
	if apierrors.IsNotFound(err) {
		// An API server applies a patch to the object in its cache, where it may still be when it has been deleted.
		// So what it warns of then depends on the moment.
		*warnings = nil
	}
	text := fmt.Sprintf("warnings %q\n%s", *warnings, shown(got, err))
	stored, err := r.Get(t.Context(), sc.object.GetName(), metav1.GetOptions{})
	return text + "\nstored " + shown(stored, err)
}

// differing shows both answers from shortly before the first difference.
func differing(itself, behind string) string {
	const before, after = 300, 700
	at := 0
	for at < min(len(itself), len(behind)) && itself[at] == behind[at] {
		at++
	}
	part := func(s string) string { return s[max(0, at-before):min(len(s), at+after)] }
	return fmt.Sprintf("\nby fastadmit %s\nitself %s", part(behind), part(itself))
}

func shown(object *unstructured.Unstructured, err error) string {
	if object == nil && err == nil {
		return "nothing"
	}
	if object != nil {
		// The API server sorts managed fields by the second of the write.
		managers := object.GetManagedFields()
		slices.SortStableFunc(managers, func(a, b metav1.ManagedFieldsEntry) int {
			return cmp.Or(cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Subresource, b.Subresource),
				cmp.Compare(a.Manager, b.Manager))
		})
		object.SetManagedFields(managers)
	}
	// fastadmit adds a cause to the details, and without it the API server leaves out empty
	// details.
	return strings.Replace(cluster.Shown(object, err, ""), `,"details":{}`, "", 1)
}

// compare runs the scenarios on both sides.
func (s sides) compare(t *testing.T, name string, g *generator) {
	row := tally.Row{Plugin: name, Test: "behind fastadmit"}
	var seen strings.Builder
	for sc := range g.scenarios {
		for i := range sc.steps {
			row.Cases++
			st := &sc.steps[i]
			itself, behind := answer(t, s[0], sc, st), answer(t, s[1], sc, st)
			seen.WriteString(itself)
			if itself == behind {
				continue
			}
			row.Different = append(row.Different, sc.about+" "+st.about)
			if len(row.Different) <= differencesMax {
				t.Errorf("%s, %s:%s", sc.about, st.about, differing(itself, behind))
			}
			break // the next steps differ as a consequence
		}
	}
	for _, part := range g.wanted {
		if !strings.Contains(seen.String(), part) {
			t.Errorf("no answer has %q in it: the scenarios are too narrow", part)
		}
	}
	t.Logf("%d requests, %d different", row.Cases, len(row.Different))
	if err := row.Write(); err != nil {
		t.Fatal(err)
	}
}
