package handlers_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/handlers"
)

// rules are the rules of all plugins: operations, group/version and resources, and the scope
// if it is not both. kube-apiserver sends only requests that they select, so a missing one
// would go unnoticed. In upstream's plugins, they are in Handles, and in checks of the
// resource in Admit and Validate. TestOperations in e2e/oracle compares the operations.
// A line that ends with a comma continues on the next one.
const rules = `
AlwaysAdmit                          *                    */*                          */*
SecurityContextDeny                  CREATE,UPDATE        /v1                          pods
NamespaceAutoProvision               CREATE               */*                          */*  Namespaced
NamespaceLifecycle                   CREATE,UPDATE        */*                          */*  Namespaced
NamespaceLifecycle                   DELETE               /v1                          namespaces
NamespaceExists                      CREATE,UPDATE,DELETE */*                          */*  Namespaced
LimitPodHardAntiAffinityTopology     CREATE,UPDATE        /v1                          pods
InitialResources                     CREATE               /v1                          pods
PodPreset                            CREATE               /v1                          pods
LimitRanger                          CREATE               /v1                          pods
LimitRanger                          UPDATE               /v1                          pods/resize
LimitRanger                          CREATE,UPDATE        /v1                          persistentvolumeclaims
ServiceAccount                       CREATE               /v1                          pods
ServiceAccount                       UPDATE               /v1                          pods/ephemeralcontainers
NodeRestriction                      CREATE,UPDATE,DELETE /v1                          pods,pods/binding,pods/ephemeralcontainers,
                                                                                       pods/eviction,pods/resize,pods/status,nodes,
                                                                                       nodes/status,persistentvolumeclaims,
                                                                                       persistentvolumeclaims/status
NodeRestriction                      CREATE               /v1                          serviceaccounts/token
NodeRestriction                      CREATE,UPDATE,DELETE certificates.k8s.io/v1,v1beta1,v1alpha1 podcertificaterequests,
                                                                  podcertificaterequests/status
NodeRestriction                      CREATE               certificates.k8s.io/v1       certificatesigningrequests
NodeRestriction                      CREATE,UPDATE,DELETE coordination.k8s.io/v1       leases
NodeRestriction                      CREATE,UPDATE,DELETE storage.k8s.io/v1            csinodes,csinodes/status
NodeRestriction                      CREATE,DELETE        resource.k8s.io/v1,v1beta2,v1beta1 resourceslices
TaintNodesByCondition                CREATE               /v1                          nodes
AlwaysPullImages                     CREATE,UPDATE        /v1                          pods
ImagePolicyWebhook                   CREATE,UPDATE        /v1                          pods,pods/ephemeralcontainers
PodSecurity                          CREATE,UPDATE        /v1                          namespaces,pods,pods/ephemeralcontainers,
                                                                                       pods/resize,podtemplates,replicationcontrollers
PodSecurity                          CREATE,UPDATE        apps/v1                      daemonsets,deployments,replicasets,statefulsets
PodSecurity                          CREATE,UPDATE        batch/v1                     cronjobs,jobs
PodSecurityPolicy                    CREATE,UPDATE        /v1                          pods
PodSecurityPolicy                    UPDATE               /v1                          pods/ephemeralcontainers
PodNodeSelector                      CREATE               /v1                          pods
Priority                             CREATE,UPDATE        /v1                          pods
Priority                             CREATE,UPDATE        scheduling.k8s.io/v1         priorityclasses
DefaultTolerationSeconds             CREATE,UPDATE        /v1                          pods
PodTolerationRestriction             CREATE,UPDATE        /v1                          pods
DenyEscalatingExec                   CONNECT              /v1                          pods/exec,pods/attach
DenyExecOnPrivileged                 CONNECT              /v1                          pods/exec,pods/attach
EventRateLimit                       CREATE,UPDATE        /v1                          events
ExtendedResourceToleration           CREATE,UPDATE        /v1                          pods
PersistentVolumeLabel                CREATE               /v1                          persistentvolumes
DefaultStorageClass                  CREATE               /v1                          persistentvolumeclaims
StorageObjectInUseProtection         CREATE               /v1                          persistentvolumes,persistentvolumeclaims
StorageObjectInUseProtection         CREATE               storage.k8s.io/v1            volumeattributesclasses
PodGroupProtection                   CREATE               scheduling.k8s.io/v1beta1,v1alpha3,v1alpha2 podgroups
OwnerReferencesPermissionEnforcement CREATE,UPDATE        */*                          */*
PersistentVolumeClaimResize          UPDATE               /v1                          persistentvolumeclaims
RuntimeClass                         CREATE               /v1                          pods
CertificateApproval                  UPDATE               certificates.k8s.io/v1       certificatesigningrequests/approval
CertificateSigning                   UPDATE               certificates.k8s.io/v1       certificatesigningrequests/status
ClusterTrustBundleAttest             CREATE,UPDATE        certificates.k8s.io/v1,v1beta1,v1alpha1 clustertrustbundles
CertificateSubjectRestriction        CREATE               certificates.k8s.io/v1       certificatesigningrequests
DefaultIngressClass                  CREATE               networking.k8s.io/v1         ingresses
DenyServiceExternalIPs               CREATE,UPDATE        /v1                          services
PodTopologyLabels                    CREATE               /v1                          pods,pods/binding
PodGroupWorkloadExists               CREATE               scheduling.k8s.io/v1alpha2   podgroups
NodeDeclaredFeatureValidator         UPDATE               /v1                          pods,pods/resize
JobValidation                        UPDATE               batch/v1                     jobs
PodResizeValidator                   UPDATE               /v1                          pods/resize
MutatingAdmissionPolicy              CREATE,UPDATE,CONNECT */*                         */*
MutatingAdmissionWebhook             *                    */*                          */*
Initializers                         CREATE,UPDATE        */*                          */*
ResourceQuota                        CREATE               */*                          *    Namespaced
ResourceQuota                        UPDATE               /v1                          pods,pods/resize,services,persistentvolumeclaims,
                                                                                       persistentvolumeclaims/status Namespaced
ResourceQuota                        UPDATE               resource.k8s.io/*            resourceclaims Namespaced
ValidatingAdmissionPolicy            *                    */*                          */*
ValidatingAdmissionWebhook           *                    */*                          */*
AlwaysDeny                           *                    */*                          */*
`

// TestRules compares the rules of all plugins with the table, so that no operation or
// resource is dropped by accident.
func TestRules(t *testing.T) {
	var want []string
	lines := regexp.MustCompile(`,\n +`).ReplaceAllString(strings.TrimSpace(rules), ",")
	for line := range strings.Lines(lines) {
		want = append(want, strings.Join(strings.Fields(line), " "))
	}
	var got []string
	for _, plugin := range handlers.InTree(handlers.DefaultOptions()) {
		for _, rule := range plugin.Rules {
			var operations []string
			for _, operation := range rule.Operations {
				operations = append(operations, string(operation))
			}
			line := fmt.Sprintf("%s %s %s/%s %s %s", plugin.Name, strings.Join(operations, ","),
				strings.Join(rule.Groups, ","), strings.Join(rule.Versions, ","), strings.Join(rule.Resources, ","), rule.Scope)
			got = append(got, strings.TrimSpace(line))
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("got a rule that is not in the table: %s", line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("got no rule %s", line)
		}
	}
}
