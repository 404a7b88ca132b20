// SPDX-License-Identifier: Apache-2.0
// Hashes of blocks, computed by make_hash_vectors.py. Do not edit.
#pragma once

#include <vector>

namespace pando::testing {

struct HashVector {
  const char* function;
  const char* request;
  std::size_t block_size;
  const char* tokens;
  const char* seed;
  std::vector<const char*> chain;
};

// clang-format off
inline const std::vector<HashVector> kHashVectors = {
    {"sha256_cbor", "plain", 16, "tokens", "vllm-none-hash",
     {
      "11dbff107932c6a93362311bc1e0c5c53f91709d25e9cfcdb7a7689a1fc5ba5f",
      "97ec1e25c5898580d92c72c85e13c79980eab1ec0e7c2195b18ab6207bff4e3f",
      "1927e6369819b987d106192b3d80c334116e186619ee6575ddb158be088f84d5",
      "9bf0c6a47fad1ab8ea24f58998117ec8434273dcd077a7892796a300ac5d9036",
      "1b926f9821f75d17199acbabae56a04bd132549336e4d23759a25ec2623bdc90",
      "54719f968a30803cad5e2bcb04ae869f1d13ee4ba2702b36da2919d11fbf8271",
     }},
    {"sha256_cbor", "lora", 16, "tokens", "vllm-none-hash",
     {
      "8d1c32dba481c039fd745113f78a7f14c6d412efac967b6501029e15a8403062",
      "c15d4ccc5c5acef7b269833eb050bf77870f89645cb7e3fe42f7f144e5b6a85f",
      "1f3e839912721c6ef6ecc64ec234afde1e2b55357b2038af2cbdfd0c412ca771",
      "c04b806465d098e5baa25e31959e1fcad2ef4bc2d409660e86f8a5659c6fa782",
      "bd3c502b674a24185531797dffdfde2300405a09cdfb18ac662cfb32a80f9fde",
      "840509c7dfb6db20fc17e4bdc0a093fbcbcb91a98da841e191d2b5c1a3c3d683",
     }},
    {"sha256_cbor", "salt", 16, "tokens", "vllm-none-hash",
     {
      "9a47d3950cbc4fbc3a24bd5d3d61f46e76ffcc9590cce309a4a5a445dda04192",
      "346aa2768120d13c481c92d91e4b51ccb708dd2cbed2b6a752ef8d63c0588297",
      "7458ab0b2333ccfc595b2cf28569d5ee0f0c74d45c0ce4eeb872a47b01450e62",
      "49d034a4cf5e03e21b71a0587ddf700f13cb0da1d9e1eb97b9f77e66fe8e5636",
      "2b807d867283392bc449ef010f1091a70f944b0ceb66c9fff613f2881ebaabe3",
      "a8de85137af72794686206b38acf9eb1a311d6d9a6f5827df3683c89d3dd38ab",
     }},
    {"sha256_cbor", "items", 16, "tokens", "vllm-none-hash",
     {
      "be93908979397a879b79dda3e2e90d7e7ad6af57f931f8e4a18047601410b5ef",
      "7d089d2d7c409a45683a2f7acacf86fe9e50b393c4d5b46875e4d621fe3e0162",
      "6d503ce139a66ca2805c2bdc5a4685289ff1b0d9716078610775f4d780b93a2b",
      "d8d470c14a253112cb38ae54b441373d3b1b38fd62eacb6df0ee6184e2c6f09b",
      "f715330e8477908a8d924258e5d0a48de1ca840c922a44d975273705e04a5732",
      "b56ba3d25d8254f4fe92e95fc36fbf2abe0fedb378fd858f7f229447b59e8c89",
     }},
    {"sha256_cbor", "embeds", 16, "tokens", "vllm-none-hash",
     {
      "94e2a8c0b83393a568663d17e49c7bb4a3e8a50f1bc1d7aa10c5d9e1e64b168e",
      "5ac2c1769f66d2a3f69e84e5d8dd0066ed71f46862de3203a61272cdcaf85256",
      "a0640b8f3694506f03c6d335dc38382cb6f9eba0c473d4fbb730f032762db814",
      "1920c32f144a9e15de2fcbe6e5a39afc4c75b8c6dc9d94498f83078ea69e0bf5",
      "2cf3cbf00a989201cad26a573b94b75a1313a891d3ca600feb9eba59580f9608",
      "69adbffef23526980eb8badb18ffa40cc5c588eca439b82971d9703c0941a107",
     }},
    {"sha256_cbor", "all", 16, "tokens", "vllm-none-hash",
     {
      "679e1d210766f38f01ed3e03a397064cef0843d088d0b0b21bc906f02910a798",
      "59899bd0c2bcb802f799bcaf06cf40fb5aa53595963674d1a40bc5b116a84b2d",
      "3b7aae8c413a3dba0e6dea415ead6d1bd892563fef2adf451ef6b0881507d8f4",
      "9419c4c7bae4cff13a1ea144f0c2e27abf104aba5c23831f49581c891d8c0841",
      "124e733d40b1be814cc66d8036eb67d3d6c46b387f17240cd50ba99d93965127",
      "299f7f06ccec9e2f892665d3a2cafb90fe4c075a12ddefb4726ebb73478eed9c",
     }},
    {"sha256_cbor", "plain", 16, "edges", "0",
     {
      "f88d89ad24ef623c416b60fe4143fae3c2fb1eb89568ebbd1b45127eb39f2c2a",
     }},
    {"sha256_cbor", "plain", 1, "tokens", "0",
     {
      "8e4a1ca5d18583f7c8ddcb99b88db8eeef240cc98ec7e506c68ce0a785ca823d",
      "a835400bb0bb22bfadb045bada38ba1e4f085d553e552a680c9a641d169eaf51",
      "6dffa3013d744f7373635769541d44fd3044d27bf3a91601caa163da4ea6ea8d",
      "24f4f357d6ad7fd933b16f9a93551446767178a2149c7c93a6044ca75e7ac8e5",
     }},
    {"sha256_cbor", "plain", 24, "tokens", "0",
     {
      "3f43d66e8c67b994b336995043f8b36b20a0c019ed6d6e1f6a580da245079fe5",
      "58dd42a3e2c0640127fb13891e811ee5fab0a91cfb65f11deec9dbdac9988501",
      "98ba17213dea8c1be94e2aa8a22c84b76b9243967e90fc27b7b7c938d9e6c86b",
      "af7fb52c42e74f8a4f34dcf7b347749665886ddc89e4f3986c486298cb115602",
     }},
    {"sha256_cbor", "plain", 32, "tokens", "0",
     {
      "9dd070f72adb1fc9eba659ed57ca35a3c4557167edb174be8900a0b446af6164",
      "362e43369e4e17ca94c980113a0548f458a8d174ff0549e64e48a3414e94a47f",
      "ba2f0fa980ddfae48c053ee23133cee15d1d8d9f00da2a4628a2d273f6e43009",
     }},
    {"xxhash_cbor", "plain", 16, "tokens", "vllm-none-hash",
     {
      "198baa40cd751398df23cb92701b2e8b",
      "bc307c2ba90173811d87825c82480e6f",
      "3ac0d4ec2cfb26094fdb44d35c6f285d",
      "35366ec93baec2014b3c770ddeecc607",
      "bcda2db95e1be031f46a256ee6d1f689",
      "79abff0a8c87d2329fbc01841d82399a",
     }},
    {"xxhash_cbor", "lora", 16, "tokens", "vllm-none-hash",
     {
      "6a1b2ec60c7393b1d867f5cdedd3376b",
      "e5ee5a5c05af2dcf9495e2389b8954cf",
      "5eb2bd929e8ae8aeb1667cb80ce82b5e",
      "3d8868364893f9421b21e5105b523eab",
      "0df5ed1b8ce77bdde0ae92bf7a00c953",
      "005ef11d3303ba4a8f3609a7ee457991",
     }},
    {"xxhash_cbor", "salt", 16, "tokens", "vllm-none-hash",
     {
      "9dea6760a4b6126b91b81088873b626d",
      "064118d2acfe997936bc85cd6753fb4b",
      "7fec0f66df089fabd6fcbc803ffa1c26",
      "6ddeae373f864dde99aa9999d0bf7f3b",
      "0af2bdf4ad828664622b1aa89ef27856",
      "604ea66457bf0ff49a7b4af7dbc614d8",
     }},
    {"xxhash_cbor", "items", 16, "tokens", "vllm-none-hash",
     {
      "3903d8f3245aed524126c0a4119e9cfe",
      "3c0e52bb399b86d5282181ee86b2c38b",
      "88cf57f97ffadd490102c8ff8453bf30",
      "2b97e1a5e2d84ea41df56eeb0c398403",
      "4e03c85ee15b9013599214a2791b93c5",
      "9e3cbfe227dff819c1914caf97932644",
     }},
    {"xxhash_cbor", "embeds", 16, "tokens", "vllm-none-hash",
     {
      "aae16f4549b2c77f8b14e3f2d17a4316",
      "9c72551ee4edb7bb985fb1549a2db258",
      "d4f5a55d87eb0b5b72cfc4f32acb84f3",
      "0a447bbe132b57a5363c8de59eccc4a9",
      "31dedb4bde53474404ba8621967332bc",
      "3d2326fdc0688c3d91b1a14a27661f25",
     }},
    {"xxhash_cbor", "all", 16, "tokens", "vllm-none-hash",
     {
      "8092ad3f94c0bbf1979a8bf2e5ef76ed",
      "2d01c702c2b43e3c97532cd5ebe7d3eb",
      "961a73259ff2fdbfd54b7b1db92ce65e",
      "8410a06cba7ee8a029dfd0de936e4f58",
      "69e1e1e01c67ce5c186803874b35a396",
      "96c9012a62d251af078752dd1dc3d153",
     }},
    {"xxhash_cbor", "plain", 16, "edges", "0",
     {
      "2cdced6e2dbe49c11ba7233fc50e5506",
     }},
    {"xxhash_cbor", "plain", 1, "tokens", "0",
     {
      "8614c775dcf9f7130f3bdebe28418746",
      "9e00a16aa7a335c8f72372cbbe093822",
      "49438b46eaf943ff667d39affc1d7f91",
      "1d6dcd6a13a0c903ebb6bedaa51dd75c",
     }},
    {"xxhash_cbor", "plain", 24, "tokens", "0",
     {
      "73ee44207d6692d349a0cfbc3c865b9c",
      "5d6235772c474aedce4d8682724c3bb5",
      "0e7f96fee40824bebd9beea35ae886a9",
      "92db304da77a139ba17da396d6047bfc",
     }},
    {"xxhash_cbor", "plain", 32, "tokens", "0",
     {
      "98f25b2f117e1a9e56a51163530651a6",
      "da6dd32b5990b9fc687027f0e0648fd0",
      "40513fe149bc929fd56b4adf05ad5566",
     }},
    {"sglang", "plain", 1, "tokens", "",
     {
      "43c66c260828c9839f26474151db105481ff92f5e01377f75389d4ce3d2dd574",
      "e6ecc693eede534d607992a5492ac49188e6dfbfb968125de1a6561120ecf0c1",
      "700fea271100478dbdd89c329c0bb3f218f1048c794b7932deb7a0f53404cfd2",
      "46ea053fdbe1834e6cfd72e3ed57944d10ff913851cfbeaf516a3481fe5bb10f",
     }},
    {"sglang", "plain", 16, "tokens", "",
     {
      "4d0de4f1ef832a7ed88966c6e5ac360e4701a071400746a7ece9a6af9a299ebb",
      "55e61fbf28cc74ce1c7dba9f67e7d3606e1605e95b405f47429f387f6f7ed664",
      "a858694d1dc2896e1a50ad4a4809ff69fbe5497a9a03a65cdb074c6212adb554",
      "ebad6a5a0d76b62b4e8ad02465b9d51020e0dee8427add4633e3d30e01575308",
     }},
    {"sglang", "plain", 32, "tokens", "",
     {
      "9bcd78996fa839fd2e058467143e4de8ae559fdc88e4c3a54bbb7bd7097f233a",
      "c65d0c8780bcb261a982d36131146061db1d899611d8b7ce3f309448fd375794",
      "36fa9e6dd6345a4da9efb14c019067369df56c522435387fa9a55e96ad6934d2",
     }},
    {"sglang", "salt", 16, "tokens", "",
     {
      "ee68ae710e12413b83bbdd80230e26691011c003a446fb198a2d04e907a73ae0",
      "a4d5f81abbe111e21d06bf3ce01770dc182199f988a2665c570cb3e865e63c09",
      "2e159e126ad5273d1ab27c97e809c816048f26877134e43c8111112c629a2550",
      "2c48abf29fea361fc3c2977315bebf97f1e114d414c0d6e3367d6011a03780bd",
      "eb4bbc20f19830053723318f175b39de28dcbb465ca962b6614545e5b984e823",
      "b0912a78b1b4e35bcea9b6583294379d28712cb69374bbe604e4b9c04576e701",
     }},
    {"sglang", "lora", 16, "tokens", "",
     {
      "c4f55b0811bd3a4308b7041bb3eb371bfc417c8fe4d528af78c6980c01c4f58a",
      "9e040b97bb052077f3a445bfcb9802527c779ff9fc81b23a81ddf8cb7ac6f1e2",
      "413924df4d19c85806f6e32e2db1f04f62f97e09a06a59cf9a996f682c2110c3",
      "480e9bd0bc4d0ee04bffae0ba95eeff316d9adde95e618e4906a37de0b60b42b",
      "43f7e0a126183f33a104137c78552cafc25f8073d007998ed469e1d96e873b13",
      "4e83d19afee3185da4d4f38fdee730350d8841481ea42f003502e8b7921b6ecf",
     }},
    {"sglang", "items", 16, "tokens", "",
     {
      "bed030e350925db63531425f490a91402fbb24e47c4479e8b8cfd33d095ba066",
      "7b3caac7dfe0374989d68f27cabd978242dde0c5fd53e1b0f214425274be343b",
      "41325683c0aab637f6249fe61d858b7ebe18da3dcdf5db7ddd97c040e087be65",
      "d3e0154a200663895d23b3e34b6e2c3ec5525ac34d66e3a657c574a2c28a4557",
      "c3794a9ffe04c25a87ef170f14b6fc12bddee9282a70dfdc6b32a2709b06e72b",
      "24ae84bd21ef70d5c4b1d9694d85345c8066e599476800abaa930a2a493e4ef8",
     }},
    {"sglang", "embeds", 16, "tokens", "",
     {
      "3f0ef58ad58bbe7e4006cb5abda2d7b080cf40a00859d7d5420962363f7ee2c3",
      "7686e672174d23e728e055b92d56dc6321d11c87576fdb67027a05d10ce64b4c",
      "3ded817bb5758d7ce7e9f5d1e3eea05ea5cf70b311bbdf331da4eedc5fac72a2",
      "1adeabc3400af93a273b1e984795d7e800036e4dd81a8a488717dde15b9f832c",
      "4651ba79e4bea356e6f6c166b8f541f84ca35eb6d2d00914d847ad23132495a2",
      "f68f503ac421c9bf06b8fbbd98e00d5d3e25b91e939d77bd91ed65086887bc19",
     }},
};
// clang-format on

}  // namespace pando::testing
