package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/walkthrough"
)

const (
	// oldPolicies are policies as API servers of v1.24 stored them.
	oldPolicies = `apiVersion: policy/v1beta1
kind: PodSecurityPolicy
metadata: {name: restricted}
spec:
  privileged: false
  requiredDropCapabilities: [ALL]
  volumes: [emptyDir, projected]
  runAsUser: {rule: MustRunAsNonRoot}
  seLinux: {rule: RunAsAny}
  supplementalGroups: {rule: RunAsAny}
  fsGroup: {rule: RunAsAny}
`
	// mayUse has Roles as with v1.24, and a user who creates pods.
	mayUse = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: restricted}
rules: [{apiGroups: [policy], resources: [podsecuritypolicies], resourceNames: [restricted], verbs: [use]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: restricted, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: restricted}
subjects: [{kind: ServiceAccount, name: default, namespace: shop}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: pods}
rules: [{apiGroups: [""], resources: [pods], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: pods}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: pods}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]
`
	// everything is the document's policy that allows and changes everything.
	everything = `apiVersion: policies.fastadmit.io/v1beta1
kind: PodSecurityPolicy
metadata: {name: everything, annotations: {seccomp.security.alpha.kubernetes.io/allowedProfileNames: "*"}}
spec:
  privileged: true
  allowedCapabilities: ["*"]
  volumes: ["*"]
  hostNetwork: true
  runAsUser: {rule: RunAsAny}
  seLinux: {rule: RunAsAny}
  supplementalGroups: {rule: RunAsAny}
  fsGroup: {rule: RunAsAny}
`
	preset = `apiVersion: settings.k8s.io/v1alpha1
kind: PodPreset
metadata: {name: database, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  env: [{name: DATABASE, value: %q}]
  volumes: [{name: cache, emptyDir: {}}]
  volumeMounts: [{name: cache, mountPath: /cache}]
`
)

// podKinds installs PodSecurityPolicy and PodPreset as custom resources, and follows
// docs/podsecuritypolicy.md.
func (s *stand) podKinds(t *testing.T) {
	page, err := os.ReadFile("../../docs/podsecuritypolicy.md")
	if err != nil {
		t.Fatal(err)
	}
	s.awaitNoNamespace(t)
	s.startNode(t, cluster.Binary)
	install := func(values string) {
		s.helm(t, "upgrade", "--install", "fastadmit", chart, "--create-namespace", "--wait", "--values",
			cluster.WriteFile(t, "values.yaml", []byte("shutdownDelaySeconds: 2\nshutdownIdleSeconds: 0\n"+values)))
	}
	admin := walkthrough.New(t, s.kubeconfig)
	admin.Document = strings.ReplaceAll(string(page), "\n   ", "\n") // blocks of lists, too
	enabled := admin.Documented(t, "yaml", "podSecurityPolicy: true")

	without, _, _ := strings.Cut(enabled, "plugins:")
	install(without + "plugins: {AlwaysPullImages: {}}\n")
	s.AwaitCRDs(t, "podsecuritypolicies.policies.fastadmit.io")
	admin.Write(t, "policies.yaml", oldPolicies)
	admin.Does(t, "policies.yaml | kubectl apply")
	s.MustKubectl(t, mayUse, "apply", "-f", "-")
	s.refused(t, strings.Replace(everything, "rule: RunAsAny", "rule: Other", 1), `spec.runAsUser.rule: Unsupported value: "Other": `+
		`supported values: "MustRunAs", "MustRunAsNonRoot", "RunAsAny"`)
	s.refused(t, strings.Replace(everything, "  fsGroup: {rule: RunAsAny}\n", "", 1), "spec.fsGroup: Required value")

	install(strings.Replace(enabled, "PodSecurityPolicy: {}", "PodSecurityPolicy: {enforcement: [{action: audit}]}", 1))
	s.audited(t)
	install(enabled)
	s.decides(t)
	s.counts(t, `fastadmit_cluster_objects{resource="podsecuritypolicies.policies.fastadmit.io"} 1`)

	// After the move, a policy that allows and changes everything comes first by name only where it
	// may be used.
	s.MustKubectl(t, everything, "apply", "-f", "-")
	s.MustKubectl(t, strings.ReplaceAll(mayUse, "restricted", "everything"), "apply", "-f", "-")
	cluster.Await(t, "a Pod as it was sent", func() error {
		return s.pod("shop", `{"privileged":true}`, func(pod *corev1.Pod) error {
			if by := pod.Annotations["kubernetes.io/psp"]; by != "everything" {
				return fmt.Errorf("got policy %q, want everything", by)
			}
			return nil
		})
	})
	s.MustKubectl(t, "", "run", "web", "--image=i", "-n", "shop")
	admin.Write(t, "admission.yaml", cluster.RestrictedPods)
	printed, err := admin.Tries(t, "fastadmit audit")
	if err == nil || !strings.Contains(printed, `Pod shop/web: denied by PodSecurity`) {
		t.Errorf("got %v %s, want that the Pod is denied", err, printed)
	}
	s.MustKubectl(t, "", "delete", "pod", "web", "-n", "shop", "--grace-period=0", "--force")

	s.presets(t, install)
	install("crds: {podSecurityPolicy: false}\nplugins: {AlwaysPullImages: {}}\n")
	const last = "kubectl delete crd podsecuritypolicies.policies.fastadmit.io"
	if !strings.Contains(string(page), last) {
		t.Errorf("the page does not say %q", last)
	}
	s.MustKubectl(t, "", strings.Fields(last)[1:]...)
	s.helm(t, "uninstall", "fastadmit")
	s.removed(t)
	s.MustKubectl(t, "", "delete", "namespace", "fastadmit")
	s.MustKubectl(t, "", "delete", "crd", "podpresets.settings.k8s.io")
	s.MustKubectl(t, mayUse, "delete", "-f", "-")
}

// refused checks that the API server refuses the manifest.
func (s *stand) refused(t *testing.T, manifest, want string) {
	t.Helper()
	if _, stderr, err := s.Kubectl(t, manifest, "create", "-f", "-"); err == nil || !strings.Contains(stderr, want) {
		t.Errorf("got %v %s, want that it is refused: %s", err, stderr, want)
	}
}

// pod tries to create a Pod with such a security context as jane, and returns the result.
func (s *stand) pod(namespace, securityContext string, check func(*corev1.Pod) error) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if err := json.Unmarshal([]byte(securityContext), &pod.Spec.Containers[0].SecurityContext); err != nil {
		return err
	}
	created, err := s.jane().CoreV1().Pods(namespace).Create(context.Background(), pod, dryRun)
	if err != nil || check == nil {
		return err
	}
	return check(created)
}

// jane is a user who may create pods, but may not use any policy.
func (s *stand) jane() kubernetes.Interface {
	config := rest.CopyConfig(s.Config)
	config.Impersonate.UserName = "jane"
	return kubernetes.NewForConfigOrDie(config)
}

// audited checks that denials appear only in the audit log.
func (s *stand) audited(t *testing.T) {
	t.Helper()
	cluster.Await(t, "what would be denied, in the audit log", func() error {
		if err := s.pod("default", `{}`, nil); err != nil {
			return err
		}
		events, err := s.Audit(func(e *auditv1.Event) bool {
			for _, value := range e.Annotations {
				if strings.Contains(value, "PodSecurityPolicy: unable to admit pod") {
					return true
				}
			}
			return false
		})
		if err == nil && len(events) == 0 {
			return errors.New("no such event")
		}
		return err
	})
}

// decides follows the life of a policy.
func (s *stand) decides(t *testing.T) {
	t.Helper()
	const none = "PodSecurityPolicy: unable to admit pod: []"
	cluster.Await(t, "a denial where nobody may use the policy",
		func() error { return cluster.WantError(s.pod("default", `{}`, nil), none) })
	completed := func(pod *corev1.Pod) error {
		sc := pod.Spec.Containers[0].SecurityContext
		if pod.Annotations["kubernetes.io/psp"] != "restricted" || sc.RunAsNonRoot == nil || !*sc.RunAsNonRoot ||
			fmt.Sprint(sc.Capabilities.Drop) != "[ALL]" {
			return fmt.Errorf("got annotations %v and security context %v, want what the policy fills in", pod.Annotations, sc)
		}
		return nil
	}
	if err := s.pod("shop", `{}`, completed); err != nil {
		t.Error(err)
	}
	if err := cluster.WantError(s.pod("shop", `{"privileged":true}`, nil),
		"spec.containers[0].securityContext.privileged: Invalid value: true: Privileged containers are not allowed"); err != nil {
		t.Error(err)
	}
	changed := strings.Replace(strings.Replace(oldPolicies, "policy/", "policies.fastadmit.io/", 1), "privileged: false",
		"privileged: true", 1)
	s.MustKubectl(t, changed, "apply", "-f", "-")
	cluster.Await(t, "the changed policy", func() error { return s.pod("shop", `{"privileged":true}`, nil) })
	s.MustKubectl(t, changed, "delete", "-f", "-")
	cluster.Await(t, "a denial without policies", func() error {
		return cluster.WantError(s.pod("shop", `{}`, nil), "no providers available to validate pod request")
	})
	s.MustKubectl(t, strings.Replace(changed, "privileged: true", "privileged: false", 1), "apply", "-f", "-")
	cluster.Await(t, "the policy that is back", func() error { return s.pod("shop", `{}`, completed) })
}

// presets follows the life of a PodPreset.
func (s *stand) presets(t *testing.T, install func(values string)) {
	t.Helper()
	install("crds: {podPreset: true}\nplugins: {PodPreset: {}}\n")
	s.AwaitCRDs(t, "podpresets.settings.k8s.io")
	s.refused(t, strings.Replace(fmt.Sprintf(preset, ""), "mountPath: /cache", "other: a", 1),
		"spec.volumeMounts[0].mountPath: Required value")
	s.refused(t, strings.Replace(fmt.Sprintf(preset, ""), "matchLabels: {app: web}", "matchExpressions: [{key: a, operator: Like}]", 1),
		`spec.selector.matchExpressions[0].operator: Unsupported value: "Like"`)
	has := func(want string) {
		t.Helper()
		cluster.Await(t, "a Pod with DATABASE "+want, func() error {
			return s.pod("shop", `null`, func(pod *corev1.Pod) error {
				c := &pod.Spec.Containers[0]
				var got string
				for i := range c.Env {
					got += c.Env[i].Name + "=" + c.Env[i].Value
				}
				for i := range c.VolumeMounts {
					got += " " + c.VolumeMounts[i].MountPath
				}
				for i := range pod.Spec.Volumes {
					got += " " + pod.Spec.Volumes[i].Name
				}
				if got != want {
					return fmt.Errorf("got %q, want %q", got, want)
				}
				return nil
			})
		})
	}
	s.MustKubectl(t, fmt.Sprintf(preset, "a"), "apply", "-f", "-")
	has("DATABASE=a /cache cache")
	s.MustKubectl(t, fmt.Sprintf(preset, "b"), "apply", "-f", "-")
	has("DATABASE=b /cache cache")
	s.counts(t, `fastadmit_cluster_objects{resource="podpresets.settings.k8s.io"} 1`)
	s.MustKubectl(t, "", "label", "podpreset/database", "-n", "shop", "a=b")
	s.MustKubectl(t, fmt.Sprintf(preset, "b"), "delete", "-f", "-")
	has("")
}
