package suite

import (
	"context"
	"testing"

	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/offline/report"
)

// FuzzRun runs any suite of fastadmit, Kyverno or Gatekeeper, and a file that it may name. Each outcome is
// written in all formats. A suite of another engine is converted, and what comes out can be read. Suites are written by strangers.
func FuzzRun(f *testing.F) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"
	f.Add("apiVersion: "+APIVersion+"\nkind: "+Kind+"\npolicies: [a.yaml]\n"+
		"cluster: [{apiVersion: v1, kind: Namespace, metadata: {name: n}}]\n"+
		"cases: [{name: a, object: a.yaml, oldObject: {apiVersion: v1, kind: Pod, metadata: {name: a}}, "+
		"expect: {decision: denied, messages: [/a+/]}}]\n", pod)
	f.Add("apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {name: t}\npolicies: [a.yaml]\n"+
		"resources: [a.yaml]\nvariables: a.yaml\nuserinfo: a.yaml\nexceptions: [a.yaml]\n"+
		"results: [{policy: p, rule: r, resources: [a], kind: Pod, result: pass, "+
		"patchedResources: a.yaml}]\n",
		"apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nmetadata: {name: p}\n"+
			"spec: {validations: [{expression: 'true'}]}\n---\n"+pod)
	f.Add("apiVersion: test.gatekeeper.sh/v1alpha1\nkind: Suite\nmetadata: {name: s}\n"+
		"tests: [{name: t, template: a.yaml, constraint: a.yaml, "+
		"cases: [{name: c, object: a.yaml, inventory: [a.yaml], assertions: [{violations: yes, message: a}]}]}]\n", pod)
	f.Fuzz(func(t *testing.T, suite, file string) {
		t.Chdir(t.TempDir())
		write(t, map[string]string{"fastadmit-test.yaml": suite, "a.yaml": file})
		r := Runner{Review: func(context.Context, *Setup) ([]*report.Result, []string, error) { return nil, nil, nil }}
		outcomes, notes := r.Run(t.Context(), []File{{"fastadmit-test.yaml", files.Tree(".")}})
		for _, format := range Formats() {
			if err := Write(t.Output(), format, "fastadmit", true, outcomes, notes); err != nil {
				t.Errorf("%s: %v", format, err)
			}
		}
		if text, _, _ := Convert(File{"fastadmit-test.yaml", files.Tree(".")}); text != nil {
			write(t, map[string]string{"converted.yaml": string(text)})
			if _, err := Read(File{"converted.yaml", files.Tree(".")}); err != nil {
				t.Errorf("%v in\n%s", err, text)
			}
		}
	})
}
