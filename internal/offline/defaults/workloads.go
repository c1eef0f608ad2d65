package defaults

import (
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	policyv1 "k8s.io/api/policy/v1"
)

// workloadKinds are the kinds that run Pods, and that scale and evict them (pkg/apis/apps/v1, batch/v1,
// autoscaling/v1 and v2: defaults.go).
func workloadKinds() map[string]kind {
	template, jobTemplate := under("spec.template.spec", podSpec()), under("spec.jobTemplate.spec.template.spec", podSpec())
	return map[string]kind{
		"apps/v1 Deployment": {typed[appsv1.Deployment], slices.Concat(deployment, template)},
		"apps/v1 ReplicaSet": {typed[appsv1.ReplicaSet], slices.Concat([]rule{set("spec", "replicas", 1)}, template)},
		"apps/v1 DaemonSet":  {typed[appsv1.DaemonSet], slices.Concat(daemonSet, template)},
		"apps/v1 StatefulSet": {
			typed[appsv1.StatefulSet], slices.Concat(statefulSet, under("spec.volumeClaimTemplates[]", claimTemplate, claim()), template),
		},
		"batch/v1 Job": {typed[batchv1.Job], slices.Concat(job, under("spec", failurePolicy), template)},
		"batch/v1 CronJob": {
			typed[batchv1.CronJob], slices.Concat(cronJob, under("spec.jobTemplate.spec", failurePolicy), jobTemplate),
		},
		"autoscaling/v1 HorizontalPodAutoscaler": {typed[autoscalingv1.HorizontalPodAutoscaler], autoscalerV1},
		"autoscaling/v2 HorizontalPodAutoscaler": {typed[autoscalingv2.HorizontalPodAutoscaler], autoscaler},
		"policy/v1 PodDisruptionBudget":          {typed[policyv1.PodDisruptionBudget], nil},
	}
}

const rollingUpdate = "RollingUpdate"

// deployment is SetDefaults_Deployment.
var deployment = []rule{
	set("spec", "replicas", 1),
	set("spec.strategy", "type", rollingUpdate),
	set("spec.strategy", "rollingUpdate", object{}, is("type", rollingUpdate)),
	set("spec.strategy.rollingUpdate", "maxUnavailable", "25%"),
	set("spec.strategy.rollingUpdate", "maxSurge", "25%"),
	set("spec", "revisionHistoryLimit", 10),
	set("spec", "progressDeadlineSeconds", 600),
}

// daemonSet is SetDefaults_DaemonSet and Convert_apps_DaemonSet_To_v1_DaemonSet, with the generation of a new
// DaemonSet.
var daemonSet = []rule{
	set("spec.updateStrategy", "type", rollingUpdate),
	set("spec.updateStrategy", "rollingUpdate", object{}, is("type", rollingUpdate)),
	set("spec.updateStrategy.rollingUpdate", "maxUnavailable", 1),
	set("spec.updateStrategy.rollingUpdate", "maxSurge", 0),
	set("spec", "revisionHistoryLimit", 10),
	edit("metadata", func(metadata object) {
		if annotations := part(metadata, "annotations"); annotations[appsv1.DeprecatedTemplateGeneration] == nil {
			annotations[appsv1.DeprecatedTemplateGeneration] = "1"
		}
	}),
}

// statefulSet is SetDefaults_StatefulSet.
var statefulSet = []rule{
	set("spec", "podManagementPolicy", "OrderedReady"),
	set("spec.updateStrategy", "rollingUpdate", object{}, isUnset("type")),
	set("spec.updateStrategy", "type", rollingUpdate),
	set("spec.updateStrategy.rollingUpdate", "partition", 0),
	set("spec.updateStrategy.rollingUpdate", "maxUnavailable", 1, since(37)),
	set("spec", "persistentVolumeClaimRetentionPolicy", object{}),
	set("spec.persistentVolumeClaimRetentionPolicy", "whenDeleted", "Retain"),
	set("spec.persistentVolumeClaimRetentionPolicy", "whenScaled", "Retain"),
	set("spec", "replicas", 1),
	set("spec", "revisionHistoryLimit", 10),
}

// claimTemplate is Convert_apps_StatefulSetSpec_To_v1_StatefulSetSpec.
var claimTemplate = []rule{
	edit("", func(claim object) { claim["apiVersion"], claim["kind"] = "v1", "PersistentVolumeClaim" }),
}

// job is SetDefaults_Job.
var job = []rule{
	set("spec", "completions", 1, isUnset("completions", "parallelism")),
	set("spec", "parallelism", 1),
	set("spec", "backoffLimit", 6, isUnset("backoffLimitPerIndex")),
	set("spec", "backoffLimit", math.MaxInt32),
	edit("", func(o object) {
		if labels := templateLabels(o); len(labels) > 0 {
			label(o, labels)
		}
	}),
	set("spec", "completionMode", "NonIndexed"),
	set("spec", "suspend", false),
	set("spec", "podReplacementPolicy", "TerminatingOrFailed", isUnset("podFailurePolicy")),
	set("spec", "podReplacementPolicy", "Failed"),
	set("spec", "manualSelector", false),
}

// failurePolicy is SetDefaults_PodFailurePolicyOnPodConditionsPattern.
var failurePolicy = []rule{fill("podFailurePolicy.rules[].onPodConditions[]", "status", "True")}

// cronJob is SetDefaults_CronJob.
var cronJob = []rule{
	set("spec", "concurrencyPolicy", "Allow"),
	set("spec", "suspend", false),
	set("spec", "successfulJobsHistoryLimit", 3),
	set("spec", "failedJobsHistoryLimit", 1),
}

// cpuUtilization is the target of a HorizontalPodAutoscaler without a metric, in percent.
const cpuUtilization = int64(80)

// autoscalerV1 is SetDefaults_HorizontalPodAutoscaler of autoscaling/v1, and
// Convert_v1_HorizontalPodAutoscaler_To_autoscaling_HorizontalPodAutoscaler.
var autoscalerV1 = []rule{
	set("spec", "minReplicas", 1),
	edit("", func(o object) {
		metadata, _ := o["metadata"].(object)
		annotations, _ := metadata["annotations"].(object)
		if spec, ok := o["spec"].(object); ok && annotations["autoscaling.alpha.kubernetes.io/metrics"] == nil {
			if spec["targetCPUUtilizationPercentage"] == nil {
				spec["targetCPUUtilizationPercentage"] = cpuUtilization
			}
		}
	}),
}

// autoscaler is SetDefaults_HorizontalPodAutoscaler of autoscaling/v2.
var autoscaler = slices.Concat([]rule{
	set("spec", "minReplicas", 1),
	edit("spec", func(spec object) {
		if metrics, _ := spec["metrics"].([]any); len(metrics) == 0 {
			target := object{"type": "Utilization", "averageUtilization": cpuUtilization}
			spec["metrics"] = []any{object{"type": "Resource", "resource": object{"name": "cpu", "target": target}}}
		}
	}),
	set("spec.behavior", "scaleUp", object{}),
	set("spec.behavior", "scaleDown", object{}),
	set("spec.behavior.scaleUp", "stabilizationWindowSeconds", 0),
	set("spec.behavior.scaleUp", "policies", []any{scalingPolicy("Pods", 4), scalingPolicy("Percent", 100)}),
	set("spec.behavior.scaleDown", "policies", []any{scalingPolicy("Percent", 100)}),
}, under("spec.behavior.scaleUp", scalingRules), under("spec.behavior.scaleDown", scalingRules))

var scalingRules = []rule{set("", "selectPolicy", "Max")}

func scalingPolicy(kind string, value int64) object {
	return object{"type": kind, "value": value, "periodSeconds": int64(15)}
}
