"""Networks of the original zoo that this package does not have, with what to do instead."""

from __future__ import annotations

_DETECTION = "detection and instance segmentation are torchvision's; its networks train and run in graphs of this package as any PyTorch module does"
_SEGMENTATION = (
    "segmentation networks are torchvision's; they train and run in graphs of this package as any PyTorch module does"
)
_STYLE = "style transfer is not image classification; write the network as a PyTorch module"
_FACES = (
    "face recognition has its own library, insightface, whose PyTorch modules train and run in graphs of this package"
)
_OTHER = "timm has this family as a PyTorch module, which trains and runs in graphs of this package as it is"
_AUTHORS = "its authors publish it as a PyTorch module, which trains and runs in graphs of this package as it is"

_NAMES = {
    _DETECTION: """
        fasterrcnn_resnet50_fpn fasterrcnn_resnet101_fpn fasterrcnn_mobilenet_v3_large_320_fpn fasterrcnn_mobilenet_v3_large_fpn
        fcos_resnet50_fpn maskrcnn_resnet50_fpn retinanet_resnet50_fpn retinanet_resnet101_fpn retinanet_resnext50_32x4d_fpn
        ssd300_vgg16 ssdlite320_mobilenet_v3_large
    """,
    _SEGMENTATION: """
        deeplabv3_resnet50_coco deeplabv3_resnet101_coco deeplabv3_mobilenet_v3_large_coco fcn_resnet50_coco fcn_resnet101_coco
        lraspp_mobilenet_v3_large_coco
    """,
    _STYLE: """
        fast_neural_style
    """,
    _FACES: """
        iresnet50 iresnet101
    """,
    _OTHER: """
        cait_XS24_384 cait_S24_224 cait_S24_384 cait_S36_384 cait_M36_384 cait_M48_448 convmixer_1536_20 convmixer_768_32_relu
        convmixer_1024_20 deit_small_patch16_LS_224 deit_small_patch16_LS_384 deit_small_patch16_LS_224_in21k
        deit_small_patch16_LS_384_in21k deit_base_patch16_LS_224 deit_base_patch16_LS_384 deit_base_patch16_LS_224_in21k
        deit_base_patch16_LS_384_in21k deit_large_patch16_LS_224 deit_large_patch16_LS_384 deit_large_patch16_LS_224_in21k
        deit_large_patch16_LS_384_in21k deit_huge_patch14_LS_224 deit_huge_patch14_LS_224_in21k dla34 dla46_c dla46x_c dla60x_c
        dla60 dla60x dla102 dla102x dla102x2 dla169 genet_large genet_normal genet_small hrnet_w18_small hrnet_w18_small_v2
        hrnet_w18 hrnet_w30 hrnet_w32 hrnet_w40 hrnet_w44 hrnet_w48 hrnet_w64 levit_128s levit_128 levit_192 levit_256 levit_384
        mobilevit_small mobilevit_x_small mobilevit_xx_small pvt_tiny pvt_small pvt_medium pvt_large res2net50_26w_4s
        res2net101_26w_4s res2net50_26w_6s res2net50_26w_8s res2net50_48w_2s res2net50_14w_8s resnest50 resnest101 resnest200
        resnest269 rexnetv1_1_0 rexnetv1_1_3 rexnetv1_1_5 rexnetv1_2_0 rexnetv1_3_0
    """,
    _AUTHORS: """
        crossformer_tiny_patch4_group7_224 crossformer_small_patch4_group7_224 crossformer_base_patch4_group7_224
        crossformer_large_patch4_group7_224 cswin_tiny_224 cswin_small_224 cswin_base_224 cswin_large_224 cswin_base_384
        cswin_large_384 fan_tiny_12_p16_224 fan_small_12_p16_224 fan_base_18_p16_224 fan_large_24_p16_224 fan_tiny_8_p4_hybrid
        fan_small_12_p4_hybrid fan_base_16_p4_hybrid fan_large_16_p4_hybrid fan_base_16_p4_hybrid_in22k_1k
        fan_base_16_p4_hybrid_in22k_1k_384 fan_large_16_p4_hybrid_in22k_1k fan_large_16_p4_hybrid_in22k_1k_384 regionvit_tiny_224
        regionvit_small_224 regionvit_small_w14_224 regionvit_small_w14_peg_224 regionvit_medium_224 regionvit_base_224
        regionvit_base_w14_224 regionvit_base_w14_peg_224 rexnet_lite_1_0 rexnet_lite_1_3 rexnet_lite_1_5 rexnet_lite_2_0
        uniformer_small uniformer_small_plus uniformer_base uniformer_base_ls van_tiny van_small van_base van_large
    """,
}
REFUSED = {name: reason for reason, names in _NAMES.items() for name in names.split()}

# Modules of the original, one for each family or task.
_MODULES = {
    _DETECTION: "detection",
    _SEGMENTATION: "segmentation",
    _STYLE: "style_transfer",
    _FACES: "face_recognition",
    _OTHER: """
        cait conv_mixer deit_III dla genet hrnet levit mobilevit pvt res2net resnest rexnet
    """,
    _AUTHORS: "crossformer cswin fan regionvit rexnet_lite uniformer van",
}
REFUSED_MODULES = {name: reason for reason, names in _MODULES.items() for name in names.split()}
