package deploy_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fastadmit/fastadmit/cluster"
)

const auditAll = "audit: {enabled: true, flowSchema: true}\n"

// TestAudit checks the CronJob.
func TestAudit(t *testing.T) {
	t.Parallel()
	values := somePlugins + auditAll + "podLabels: {a: b}\npodAnnotations: {a: b}\nimagePullSecrets: [{name: pull}]\n"
	run(t, tool(t, "helm"), append(helm(t, "lint", values, "control-plane.yaml"), "--strict")...)
	r := render(t, values, "control-plane.yaml")
	if out, err := kubeconform(t, schemas(t), r); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	job := one[batchv1.CronJob](t, r, "CronJob")
	pod := &job.Spec.JobTemplate.Spec.Template.Spec
	container := &pod.Containers[0]
	flags := run(t, binary, "audit", "--help")
	for _, a := range container.Args[1:] {
		if name, _, _ := strings.Cut(a, "="); !regexp.MustCompile(`(?m)^ +` + name + `\b`).MatchString(flags) {
			t.Errorf("%s is no flag of fastadmit audit", name)
		}
	}
	checkMounts(t, pod)
	if s := container.SecurityContext; *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !*pod.SecurityContext.RunAsNonRoot {
		t.Errorf("got %+v", s)
	}
	subject := one[flowcontrolv1.FlowSchema](t, r, "FlowSchema").Spec.Rules[0].Subjects[0].ServiceAccount
	if subject.Name != pod.ServiceAccountName || subject.Namespace != job.Namespace {
		t.Errorf("got a flow schema for %v, want that of %s", subject, pod.ServiceAccountName)
	}
	if r := render(t, somePlugins, ""); len(only[batchv1.CronJob](t, r, "CronJob")) > 0 {
		t.Error("got a CronJob that nobody asked for")
	}
	long := run(t, tool(t, "helm"), "template", strings.Repeat("a", 53), "chart", "--namespace", "n",
		"--set", "plugins.AlwaysPullImages.failurePolicy=Fail,audit.enabled=true")
	for _, object := range parse(t, long) {
		if name := object.GetName(); object.GetKind() == "CronJob" && len(name) != 52 { // the maximum length of a CronJob's name
			t.Errorf("got the name %q", name)
		}
	}
}

// TestAuditRBAC compares an audit's rights in the chart for each plugin with those that the plugin
// declares and its rules select.
func TestAuditRBAC(t *testing.T) {
	t.Parallel()
	reports := []rbacv1.PolicyRule{
		{APIGroups: []string{"openreports.io"}, Resources: []string{"reports", "clusterreports"},
			Verbs: []string{"list", "create", "patch", "delete"}},
		{APIGroups: []string{"wgpolicyk8s.io"}, Resources: []string{"policyreports", "clusterpolicyreports"},
			Verbs: []string{"list", "create", "patch", "delete"}},
	}
	for name, h := range table(t) {
		r := renderPlugin(t, name, h)
		want := slices.Concat(cluster.Rules(cluster.Namespaces.Watched()), reports)
		if h.SideEffects == "" {
			want = append(want, cluster.Rules(needs(name)...)...)
			want = append(want, listed(h)...)
		}
		for _, role := range only[rbacv1.ClusterRole](t, r, "ClusterRole") {
			if !strings.HasSuffix(role.Name, "-audit") {
				continue
			}
			if got, want := permissions(role.Rules), permissions(want); !maps.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", name, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
			}
		}
	}
}

// renderPlugin returns a release of one plugin with an audit. Rendering takes half a second, so
// TestAuditRBAC and TestPluginRBAC share it.
func renderPlugin(t *testing.T, name string, h handled) release {
	t.Helper()
	return render(t, fmt.Sprintf("plugins: {%s: {%s}}\n", name, settingsOf(name, h))+auditAll+ownCertificate()+writesAllowed, "")
}

// listed returns the rights to list the kinds whose creation a plugin handles.
func listed(h handled) (rules []rbacv1.PolicyRule) {
	if h.Everything {
		return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}} // as settingsOf
	}
	for _, rule := range slices.Concat(h.Mutate, h.Validate) {
		if !slices.Contains(rule.Operations, "CREATE") && !slices.Contains(rule.Operations, "*") {
			continue
		}
		for _, resource := range rule.Resources {
			if !strings.Contains(resource, "/") {
				rules = append(rules, rbacv1.PolicyRule{APIGroups: rule.APIGroups, Resources: []string{resource}, Verbs: []string{"list"}})
			}
		}
	}
	return rules
}
