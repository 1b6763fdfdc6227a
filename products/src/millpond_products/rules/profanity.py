"""Profanity: rude words of many languages. A rule may add words to the list, or allow some of them.

Only whole words count (``*`` stands for any ending), so that Scunthorpe and Essex pass.
"""

from __future__ import annotations

from typing import Final

WORDS: Final = tuple(
    word
    for line in """
    fuck* motherfuck* mofo fck fuk wtf stfu gtfo
    shit shits shitty shitting shithead* shitface* bullshit* horseshit* dipshit* shite
    cunt cunts cunty twat twats
    bitch bitches bitchy bitching bastard bastards
    ass asses asshole* arse arses arsehole* jackass* dumbass* assclown* asshat*
    dick dicks dickhead* dickwad* cock cocks cocksuck* prick pricks bellend* knobhead*
    pussy pussies wank wanker* wanking tosser tossers bollocks bugger buggers
    slut sluts slutty whore* skank skanks
    piss pissed pissing pisser jizz cumshot* blowjob* handjob* rimjob* dildo* titties tits
    nigger* nigga* faggot* fag fags kike kikes spic spics chink chinks gook gooks wetback* raghead*
    towelhead* coon coons
    tranny trannies retard retards retarded paki pakis
    arschloch* scheiss* scheisse* wichser* hurensohn* fotze* schlampe* missgeburt* verpiss* ficken fick fickt gefickt
    schwuchtel* hure huren nutte nutten spast spasti* kanake* scheis
    puta putas puto putos hijoputa* mierda mierdas cabron cabrones gilipollas pendejo* chinga* chingar joder verga
    maricon maricones zorra zorras culero* pinche
    merde merdes putain putains salope* connard* connasse* encule* enculer* pute putes batard* nique niquer ntm
    cazzo cazzi stronzo* stronza* vaffanculo* puttana* minchia coglione* merda merdas bastardo*
    caralho* porra foda* foder buceta* viado* cuzao arrombado*
    kurwa* kurwy chuj* huj pierdol* jebac jebany skurwysyn* pizda* cipa
    kut kutwijf klootzak* hoer hoeren kanker tering godverdomme flikker*
    blyat bljad suka suki pizdec* ebat khuy mudak* pidor* pidoras*
    блядь блять сука суки хуй хуя хуйня* хуево* пизда* пиздец* ебать ебан* ёбан* мудак* пидор* гандон*
    orospu* siktir* amk yarrak* gotveren*
    vittu* perkele saatana kusipaa*
    javla javlar helvete fitta* kuk horunge*
    faen fitte* kuksuger* raev
    gamoto malaka* gamimeno* μαλακα* γαμω* πουτανα*
    くそ 死ね ちくしょう 傻逼 操你妈 他妈的 妈的 씨발 개새끼 병신
    """.splitlines()
    for word in line.split()
)
